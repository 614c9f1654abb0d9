#!/usr/bin/env bash
# Builds the addon for Linux with glibc as it is published, on Linux x64:
#
#   scripts/build-linux.sh x64      and tries it here
#   scripts/build-linux.sh arm64    cross-built, and tried with an arm64 Node under emulation
#
# It is linked for glibc 2.28, the oldest that Node 20 runs on, whatever this system has, and the symbol versions that it
# asks for are read from the file afterwards. It goes to npm/linux-…-gnu/, where scripts/pack.mjs looks for it.
#
# Needs Rust, Node, Python 3 with venv, readelf (binutils), and package registries: PyPI for zig, which brings the C compiler
# and linker; for arm64 also npm and Debian (see arm64-on-debian.sh). All that goes to target/; nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

OLDEST_GLIBC=2.28
MOST_BYTES=4000000

fail() {
  echo "$1" >&2
  exit 1
}
need() { command -v "$1" >/dev/null || fail "$1 is missing: $2"; }

case "${1-}" in
  x64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) fail "usage: scripts/build-linux.sh x64|arm64" ;;
esac
target=$machine-unknown-linux-gnu
addon=npm/linux-$1-gnu/leasehold.linux-$1-gnu.node

[ "$(uname -sm)" = 'Linux x86_64' ] || fail "this script runs on Linux x64, not on $(uname -sm)"
need cargo 'see https://rustup.rs'
need node 'Node 20 or later'
need readelf 'on Debian: apt-get install binutils'
need python3 'on Debian: apt-get install python3-venv'

zig=target/zig
if [ ! -x $zig/bin/cargo-zigbuild ]; then
  python3 -m venv $zig || fail 'python3 has no venv: on Debian, apt-get install python3-venv'
  $zig/bin/pip install --quiet cargo-zigbuild==0.24.0 ziglang==0.17.1
fi
export PATH="$PWD/$zig/bin:$PATH"

# Each with a folder of its own: their compilers may be of different versions.
out=target/published/$1
if [ "$1" = arm64 ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  # rustup's own, where it can be had; else Debian's, of another version and so with a compiler and a folder of its own.
  if ! { command -v rustup >/dev/null && rustup target add $target 2>/dev/null; }; then
    RUSTC=$(scripts/arm64-on-debian.sh rustc)
    export RUSTC
  fi
fi
CARGO_TARGET_DIR=$out scripts/cargo-for-addon.sh zigbuild --release --locked --target $target.$OLDEST_GLIBC
cp $out/$target/release/libleasehold.so "$addon"

newest=$(readelf --version-info --wide "$addon" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ -n "$newest" ] || fail "$addon names no version of glibc: it can't be told what it runs on"
[ "$(printf 'GLIBC_%s\n%s\n' $OLDEST_GLIBC "$newest" | sort -V | tail -n 1)" = GLIBC_$OLDEST_GLIBC ] ||
  fail "$addon needs $newest, and must run on glibc $OLDEST_GLIBC"
readelf --file-header "$addon" | grep -qi "machine:.*${machine/_/.}" || fail "$addon is not for $machine"
bytes=$(stat -c %s "$addon")
[ "$bytes" -lt $MOST_BYTES ] || fail "$addon has $bytes bytes, and must have less than $MOST_BYTES"
echo "$addon: $bytes bytes, needs $newest"

[ -f native.cjs ] && [ -f dist/index.js ] ||
  { echo 'not tried: `npm run build` makes the other half, which it needs'; exit 0; }
export NAPI_RS_NATIVE_LIBRARY_PATH=$PWD/$addon
if [ "$1" = arm64 ]; then
  scripts/arm64-on-debian.sh node __test__/package/smoke.mjs
else
  node __test__/package/smoke.mjs
fi
