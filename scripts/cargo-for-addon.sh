#!/bin/sh
# What napi runs instead of cargo (see build-addon.mjs). The crate is a cdylib for Node and an rlib for its tests, and where
# it is built as both, Cargo leaves out link-time optimization without a word; so only the one is asked for.
set -eu
case "${1-}" in
  build) shift && exec cargo rustc --lib --crate-type cdylib "$@" ;;
  # With --cross-compile.
  zigbuild) shift && exec cargo-zigbuild rustc --lib --crate-type cdylib "$@" ;;
  *) exec cargo "$@" ;;
esac
