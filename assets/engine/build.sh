#!/bin/sh
# Makes kernels.wasm and shared.wasm of kernels.c and quantized.c: sh assets/engine/build.sh [FOLDER]. The second is for a memory that threads share.
# Needs clang with the wasm32 target, and wasm-ld.
set -eu
cd "$(dirname "$0")"
folder=${1:-.}
build() {
    made=$folder/$1
    shift
    clang --target=wasm32 -O3 -msimd128 -nostdlib -ffreestanding -Wl,--no-entry,--export-dynamic,--import-memory,--export=__heap_base,--strip-all \
        "$@" kernels.c quantized.c -o "$made"
    chmod 644 "$made"
}
build kernels.wasm
build shared.wasm -matomics -mbulk-memory -mmutable-globals -Wl,--shared-memory,--max-memory=4294967296,--export=__stack_pointer
