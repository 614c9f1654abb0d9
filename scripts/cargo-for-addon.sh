#!/bin/sh
# What napi, build-linux.sh and the release workflow run instead of cargo. The crate is a cdylib for Node and an rlib for its tests, and where it
# is built as both, Cargo leaves out link-time optimization without a word; so only the one is asked for.
set -eu

# Nothing is thrown through SQLite and ring: a tenth of a megabyte of tables that nobody would read. Both are needed, as
# zig asks for the second kind where only the first is refused. Microsoft's compiler knows neither.
case "$(uname -s)" in
  MINGW* | MSYS*) ;;
  *) export CFLAGS="${CFLAGS-} -fno-asynchronous-unwind-tables -fno-unwind-tables" ;;
esac

case "${1-}" in
  build) cargo=cargo ;;
  # With --cross-compile. zig takes -Oz for -Os, which inlines more: SQLite has 0.1 MB less with what it was asked for.
  # And it keeps frame pointers, which no other compiler does here.
  zigbuild) cargo=cargo-zigbuild CFLAGS="$CFLAGS -Xclang -Oz -fomit-frame-pointer" ;;
  *) exec cargo "$@" ;;
esac
shift
# Where napi has no types of an earlier build it forces one, by the time of day: so the next build, which is not forced, would
# compile all of our code once more for nothing. What was never built needs no force.
target=${NAPI_TYPE_DEF_TMP_FOLDER-}
target=${target%/napi-rs/*}
for built in "$target"/*/.fingerprint/leasehold-* "$target"/*/*/.fingerprint/leasehold-*; do
  [ ! -e "$built" ] || break
done
[ -e "$built" ] || unset NAPI_FORCE_BUILD_LEASEHOLD
# LLVM inlines what it reckons at 225 instructions or less, and at 325 where the source asks for it: 0.36 MB more than so,
# for 2 to 8 % less CPU per lock. opt-level = "s" for our own code instead of this is 0.1 MB smaller, but takes 12 to 20 % more.
# Nobody debugs an addon of the developer profile by its symbols, and tests copy it.
exec $cargo rustc --lib --crate-type cdylib "$@" -- -C strip=symbols \
  -C llvm-args=-inline-threshold=50 -C llvm-args=-inlinehint-threshold=150
