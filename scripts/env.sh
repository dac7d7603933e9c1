# The build environment, sourced by every recipe: where the tools are, and which compiler makes wasm.
source "$(dirname "${BASH_SOURCE[0]}")/versions.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

export PATH="$STEPWELL_TOOLS/cargo-deny-$CARGO_DENY_VERSION/bin:$STEPWELL_TOOLS/cargo-nextest-$CARGO_NEXTEST_VERSION/bin:$STEPWELL_TOOLS/mdbook-$MDBOOK_VERSION/bin:$PATH"
export WORKERD_BIN="$root/node_modules/.bin/workerd"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}"

# cli: names the command line that builds Workers as $STEPWELL_BIN: the given one, or that of this source, built first. Of
# the whole workspace: with other features than the tests have, its dependencies would be compiled twice.
cli() {
  [ -z "${STEPWELL_BIN:-}" ] || return 0
  cargo build --quiet --locked --manifest-path "$root/Cargo.toml" --workspace --all-features --bin stepwell
  STEPWELL_BIN=$CARGO_TARGET_DIR/debug/stepwell
}

# wasm_env COMMAND...: runs a command with a compiler that has the wasm32 target: the active one, or
# Debian's (scripts/wasm-std), which also needs its own linker and, because two compilers must not share
# a folder, its own target directory.
wasm_env() {
  if [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib" ]; then
    "$@"
  else
    PATH="/usr/bin:$PATH" RUSTC=/usr/bin/rustc CARGO=/usr/bin/cargo \
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22 CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian" "$@"
  fi
}

# can_unwind SYSROOT: whether a compiler has what it takes to build a standard library that unwinds.
can_unwind() {
  [ -d "$1/lib/rustlib/src/rust/library" ] && [ -d "$1/lib/rustlib/wasm32-unknown-unknown/lib" ]
}

# unwind_env COMMAND...: runs `stepwell build --panic-unwind`, which wants `cargo +nightly`. A nightly that has its
# source is used as it is; otherwise the compiler of the other bundles stands in for one (scripts/nightly): it
# builds the same, and is the one that the rest was tested with.
unwind_env() {
  local nightly
  if nightly=$(RUSTUP_AUTO_INSTALL=0 rustc +nightly --print sysroot 2>/dev/null) && can_unwind "$nightly"; then
    CARGO_TARGET_DIR="$CARGO_TARGET_DIR/unwind" "$@"
  elif can_unwind "$(rustc --print sysroot)"; then
    STEPWELL_CARGO=$(command -v cargo) STEPWELL_RUSTC=$(command -v rustc) \
      PATH="$root/scripts/nightly:$PATH" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/unwind" "$@"
  else
    STEPWELL_CARGO=/usr/bin/cargo STEPWELL_RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22 \
      PATH="$root/scripts/nightly:$PATH" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/debian-unwind" "$@"
  fi
}
