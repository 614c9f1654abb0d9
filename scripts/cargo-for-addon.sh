#!/bin/sh
# napi, build-linux.sh and the release workflow run this script instead of cargo. The crate is a
# cdylib for Node and an rlib for its tests. If both are built, Cargo leaves out link-time
# optimization without a warning, so this script builds only the cdylib.
set -eu

# No exceptions pass through SQLite and ring, so their unwind tables would be 0.1 MB without use.
# Both options are needed: if only the first one is given, zig makes the second kind of tables.
# Microsoft's compiler knows neither.
case "$(uname -s)" in
  MINGW* | MSYS*) ;;
  *) export CFLAGS="${CFLAGS-} -fno-asynchronous-unwind-tables -fno-unwind-tables" ;;
esac

case "${1-}" in
  build) cargo=cargo ;;
  # With --cross-compile. zig changes -Oz to -Os, which inlines more. With -Oz, SQLite is 0.1 MB
  # smaller. zig also keeps frame pointers, as no other compiler does here.
  zigbuild) cargo=cargo-zigbuild CFLAGS="$CFLAGS -Xclang -Oz -fomit-frame-pointer" ;;
  *) exec cargo "$@" ;;
esac
shift
# If napi finds no types of an earlier build, it forces one by the time of day. The next build,
# which is not forced, would then compile all of our code again. A first build needs no force.
target=${NAPI_TYPE_DEF_TMP_FOLDER-}
target=${target%/napi-rs/*}
for built in "$target"/*/.fingerprint/leasehold-* "$target"/*/*/.fingerprint/leasehold-*; do
  [ ! -e "$built" ] || break
done
[ -e "$built" ] || unset NAPI_FORCE_BUILD_LEASEHOLD
# By default, LLVM inlines functions of up to 225 instructions, and of up to 325 if the source asks
# for it. These limits save 0.36 MB and cost 2 to 8 % more CPU per lock. opt-level = "s" for our own
# code would save 0.1 MB more, but cost 12 to 20 % more CPU. Strip the symbols in the developer
# profile, too: no debugger needs them, and tests copy the addon.
exec $cargo rustc --lib --crate-type cdylib "$@" -- -C strip=symbols \
  -C llvm-args=-inline-threshold=50 -C llvm-args=-inlinehint-threshold=150
