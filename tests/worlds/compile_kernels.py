"""Compiles the kernels for a GPU that is not there, through the launches that would run them, and
prints what they take, a JSON object a kernel.

    python tests/worlds/compile_kernels.py 90 [shape …] [--keep FOLDER]

90 is the compute capability; --keep leaves PTX and cubins in a folder.

A process of its own, since Triton decides when it is imported whether to interpret or to compile.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.torch_engine.attention.spec import AttentionSpec
from core.torch_engine.gpu import paged as triton_paged
from core.torch_engine.gpu import rotary, sampling_kernel
from core.torch_engine.gpu.paged_layout import PagedLayout, queries_per_tile

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Shape(NamedTuple):
    """A model's attention."""

    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype = torch.bfloat16
    spec: AttentionSpec = AttentionSpec(0.1)


SHAPES = {
    "Qwen3-0.6B": Shape(16, 8, 128, 128),
    "Llama-3.2-1B": Shape(32, 8, 64, 64),
    "Llama-3.1-8B": Shape(32, 8, 128, 128),
    "GPT-2": Shape(12, 12, 64, 64, torch.float16),
    "float32": Shape(32, 8, 64, 64, torch.float32),
    "Qwen3-0.6B in float32": Shape(16, 8, 128, 128, torch.float32),
    "Gemma-2": Shape(16, 8, 256, 256, spec=AttentionSpec(0.1, 4096, 50.0)),
    "gpt-oss": Shape(64, 8, 64, 64, spec=AttentionSpec(0.1, 128, None, torch.zeros(64))),
    "Phi": Shape(32, 32, 80, 96),
    "DeepSeek": Shape(16, 16, 192, 128),
    "Falcon": Shape(71, 1, 64, 64),
}
SAMPLING = {"sampling, bfloat16": torch.bfloat16, "sampling, float32": torch.float32}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("capability", type=int)
    parser.add_argument("shapes", nargs="*", default=[*SHAPES, *SAMPLING])
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    target = GPUTarget("cuda", arguments.capability, 32)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0, get_current_stream=int, get_current_target=lambda: target
        )
    )
    launch, compiled = JITFunction.run, {}

    def compile_only(self, *args, grid, warmup, **kwargs):
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        compiled.setdefault(self.__name__, {})[id(kernel)] = kernel

    JITFunction.run = compile_only
    for name in arguments.shapes:
        compiled.clear()
        if name in SAMPLING:
            sample(SAMPLING[name])
        else:
            attend(SHAPES[name])
        for function, kernels in compiled.items():
            kernel, *_ = kernels.values()
            cubin = kernel.asm["cubin"]
            facts = {
                "shape": name,
                "kernel": function,
                "variants": len(kernels),
                "shared": kernel.metadata.shared,
            }
            facts |= {
                "warps": kernel.metadata.num_warps,
                "copies": copies(kernel.asm["ptx"]),
            } | resources(cubin)
            print(json.dumps(facts), flush=True)
            if arguments.keep:
                (arguments.keep / f"{name}{function}.ptx").write_text(kernel.asm["ptx"])
                (arguments.keep / f"{name}{function}.cubin").write_bytes(cubin)


def attend(shape: Shape) -> None:
    """Passes that differ in all that may differ between passes of one model."""
    for rows, width, offset in ((1, 112, 0), (1, 1, 0), (1, 7, 1), (5, 1, 2), (2, 16, 3)):
        numbers = torch.zeros(1000, dtype=torch.int32)[offset:]
        lists = [numbers[offset * i : offset * i + 3 + offset] for i in range(10)]
        tables = torch.zeros(3, 16 + offset, dtype=torch.int32)
        layout = PagedLayout(16, queries_per_tile(shape.heads // shape.kv_heads), tables, *lists)
        query = torch.zeros(rows, width, shape.heads, shape.key_size, dtype=shape.dtype).transpose(
            1, 2
        )
        sizes = (shape.key_size, shape.value_size)
        keys, values = (torch.zeros(64, shape.kv_heads, size, dtype=shape.dtype) for size in sizes)
        triton_paged.attend(query, keys, values, SimpleNamespace(paged=layout), shape.spec)
        key, value = (
            torch.zeros(rows, width, shape.kv_heads, size, dtype=shape.dtype).transpose(1, 2)
            for size in sizes
        )
        triton_paged.store(key, value, keys, values, torch.zeros(1000, dtype=torch.int64)[offset:])
        turned = torch.zeros(rows, width, shape.key_size, dtype=shape.dtype)
        rotary.turn(query, key.new_zeros(query.shape), turned, turned)


def sample(dtype: torch.dtype) -> None:
    """Batches of several sizes."""
    for n in (1, 7, 16):
        sampling_kernel.sample_rows(
            torch.zeros(n, 128256, dtype=dtype),
            torch.zeros(n + 1)[1:],
            torch.zeros(n + 1).long()[1:],
        )


def copies(ptx: str) -> list[int]:
    """Bytes at once of the asynchronous copies to shared memory, each size once."""
    return sorted(
        {int(size, 16) for size in re.findall(r"cp\.async\.c[ag]\.[^;]*?\], 0x([0-9a-f]+)", ptx)}
    )


def resources(cubin: bytes) -> dict[str, int]:
    """Registers, and bytes of stack and of local memory, of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return {
        name.lower(): int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", report)
    }


if __name__ == "__main__":
    main()
