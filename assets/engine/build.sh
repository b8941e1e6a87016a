#!/bin/sh
# Makes kernels.wasm of kernels.c: sh assets/engine/build.sh [FILE]. Needs clang with the wasm32 target, and wasm-ld.
cd "$(dirname "$0")" || exit 1
exec clang --target=wasm32 -O3 -msimd128 -nostdlib -ffreestanding \
    -Wl,--no-entry,--export-dynamic,--import-memory,--export=__heap_base,--strip-all kernels.c -o "${1:-kernels.wasm}"
