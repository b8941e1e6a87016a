#!/bin/sh
# Makes kernels.wasm of kernels.c and quantized.c: sh assets/engine/build.sh [FILE]. Needs clang with the wasm32 target, and wasm-ld.
set -eu
cd "$(dirname "$0")"
made=${1:-kernels.wasm}
clang --target=wasm32 -O3 -msimd128 -nostdlib -ffreestanding \
    -Wl,--no-entry,--export-dynamic,--import-memory,--export=__heap_base,--strip-all kernels.c quantized.c -o "$made"
chmod 644 "$made"
