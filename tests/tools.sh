# Sourced by tests/setup and tests/run: where the test tools are and which versions the project uses.
# shellcheck shell=bash disable=SC2034
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Outside the checkout, so that a fresh clone does not build the tools again.
tools=${INFERENCELAYER_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/inferencelayer/tools}
lavapipe_chromium=$tools/lavapipe-chromium
export PATH="$tools/bin:$tools/node_modules/.bin:$PATH"

cargo_deny=0.20.2
cargo_hack=0.6.46
wasm_pack=0.15.1
binaryen=132.0.0
esbuild=0.28.2
typescript=7.0.2
playwright=1.65.1
axe=4.14.1
vite=8.4.0
# The command and the library must be of one version.
wasm_bindgen=$(grep -A1 '^name = "wasm-bindgen"$' "$root/Cargo.lock" | sed -n 's/^version = "\(.*\)"$/\1/p')
