#!/usr/bin/env bash
# Builds the addon for Linux as it is published, on Linux x64:
#
#   scripts/build-linux.sh x64-gnu         builds and tries it here
#   scripts/build-linux.sh arm64-gnu       cross-builds it, and tries it with an arm64 Node under emulation
#   scripts/build-linux.sh x64-musl        tries it with a Node for musl, as Alpine has
#   scripts/build-linux.sh arm64-musl      tries it with a Node for musl and arm64, under emulation
#   scripts/build-linux.sh … --no-try      builds it without trying it
#
# With glibc, the addon is linked for 2.28, the oldest version for Node 20, even if this system has
# a later one. Afterwards the script reads the required symbol versions from the file. The addon
# goes to npm/linux-…/, where scripts/pack.mjs finds it.
#
# Needs Rust, Node, Python 3 with venv, readelf (binutils), and package registries: PyPI for zig,
# which has the C compiler and linker; to try it also npm and Debian (see node-on-debian.sh). All of
# that goes to target/. The script installs only the Rust standard library of the target, if rustup
# has it.
set -euo pipefail
cd "$(dirname "$0")/.."

OLDEST_GLIBC=2.28

fail() {
  echo "$1" >&2
  exit 1
}
need() { command -v "$1" >/dev/null || fail "$1 is missing: $2"; }

usage='usage: scripts/build-linux.sh x64-gnu|arm64-gnu|x64-musl|arm64-musl [--no-try]'
platform=${1-}
case "$platform" in
  x64-gnu | x64-musl) machine=x86_64 ;;
  arm64-gnu | arm64-musl) machine=aarch64 ;;
  *) fail "$usage" ;;
esac
case "${2-}" in
  '') try=yes ;;
  --no-try) try= ;;
  *) fail "$usage" ;;
esac
libc=${platform#*-}
target=$machine-unknown-linux-$libc
addon=npm/linux-$platform/leasehold.linux-$platform.node

[ "$(uname -sm)" = 'Linux x86_64' ] || fail "this script runs on Linux x64, not on $(uname -sm)"
need cargo 'see https://rustup.rs'
need node 'Node 20 or later'
need readelf 'on Debian: apt-get install binutils'
need python3 'on Debian: apt-get install python3-venv'

zig=target/zig
if [ ! -x $zig/bin/cargo-zigbuild ]; then
  python3 -m venv $zig || fail 'python3 has no venv: on Debian, apt-get install python3-venv'
  $zig/bin/pip install --quiet --require-hashes --no-deps --only-binary :all: --requirement scripts/zig-requirements.txt
fi
export PATH="$PWD/$zig/bin:$PATH"

# Each target has a folder of its own, because their compilers may be of different versions.
out=target/published/$platform
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  # Use rustup's library if there is one. Debian's has another version, and so needs a compiler and
  # a folder of its own.
  if ! { command -v rustup >/dev/null && rustup target add $target 2>/dev/null; }; then
    [ "$platform" = arm64-gnu ] || fail "the Rust standard library for $target is missing: rustup target add $target"
    RUSTC=$(scripts/node-on-debian.sh rustc)
    export RUSTC
  fi
fi
if [ "$libc" = gnu ]; then
  wanted=$target.$OLDEST_GLIBC
else
  wanted=$target
  # A musl target is linked statically by default, but an addon can't be.
  export RUSTFLAGS="${RUSTFLAGS-} -C target-feature=-crt-static"
fi
CARGO_TARGET_DIR=$out scripts/cargo-for-addon.sh zigbuild --release --locked --target $wanted
cp $out/$target/release/libleasehold.so "$addon"

newest=$(readelf --version-info --wide "$addon" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 || true)
if [ "$libc" = gnu ]; then
  [ -n "$newest" ] || fail "$addon names no version of glibc: it can't be told what it runs on"
  [ "$(printf 'GLIBC_%s\n%s\n' $OLDEST_GLIBC "$newest" | sort -V | tail -n 1)" = GLIBC_$OLDEST_GLIBC ] ||
    fail "$addon needs $newest, and must run on glibc $OLDEST_GLIBC"
else
  [ -z "$newest" ] || fail "$addon asks for $newest, and is for musl"
  # musl's loader is itself libc.so. Alpine's image for Node may lack other libraries.
  others=$(readelf --dynamic --wide "$addon" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^libc\.so$' || true)
  [ -z "$others" ] || fail "$addon needs $others, which a musl system may not have"
fi
readelf --file-header "$addon" | grep -qi "machine:.*${machine/_/.}" || fail "$addon is not for $machine"
node scripts/check-size.mjs "$addon"
echo "$addon: $(stat -c %s "$addon") bytes, needs ${newest:-musl}"

[ -n "$try" ] || exit 0
[ -f native.cjs ] && [ -f dist/index.js ] ||
  { echo 'not tried: `npm run build` makes the other half, which it needs'; exit 0; }
export NAPI_RS_NATIVE_LIBRARY_PATH=$PWD/$addon
if [ "$platform" = x64-gnu ]; then
  node __test__/package/smoke.mjs
else
  scripts/node-on-debian.sh "$platform" __test__/package/smoke.mjs
fi
