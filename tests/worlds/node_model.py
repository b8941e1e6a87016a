"""A browser's model without a browser: the real JavaScript and WebAssembly of assets/engine in
Node, asked by the real Python in this process.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.browser.weights import pack_weights
from core.config import BUILTIN_FOLDER, SMOLLM2
from core.torch_engine.models.names import packed_smollm2

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "assets" / "engine" / "kernels.wasm"
_HERE = Path(__file__).with_name("node_model.mjs")


class Answer(list):
    """Numbers as Pyodide hands them over."""

    def to_py(self) -> Answer:
        return self

    def tolist(self) -> list[float]:
        return [math.nan if n is None else n for n in self]


class NodeModel:
    """See `BrowserModel` of core/browser/executor.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.facts, self.heads = self.ask("facts"), self.ask("heads")
        self.threads = self.ask("threads")
        self.tokenizer, self.between = self.ask("words")

    def ask(self, what: str, *given: Any) -> Any:
        self._process.stdin.write(json.dumps([what, *given]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "node has ended"
        answer = json.loads(line)
        if isinstance(answer, dict):
            raise RuntimeError(answer["error"])
        return answer

    def pool(self, slots: int) -> int:
        return self.ask("pool", slots)

    def compute(self, told: array[int], rows: str) -> Answer:
        return Answer(self.ask("pass", told.tolist(), rows))

    def attention(self, ids: array[int], layer: int, head: int) -> Answer:
        return Answer(self.ask("attention", ids.tolist(), layer, head))


@contextmanager
def node_model(
    name: str, folder: Path, kernels: Path = KERNELS, threads: int = 1
) -> Iterator[NodeModel]:
    """A built-in model or `smollm2` in Node; skips where Node is not. folder: for its packed
    weights. threads: that compute, once all have come; with several, kernels are `shared.wasm`.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not here.")
    packed = folder / f"{name}.bin"
    if not packed.exists():
        packed.write_bytes(
            gzip.decompress(packed_smollm2().read_bytes())
            if name == SMOLLM2
            else pack_weights(BUILTIN_FOLDER / name)
        )
    command = [node, str(_HERE), str(packed), str(kernels), str(threads)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        model = NodeModel(process)
        while model.threads < threads:
            model.threads = model.ask("threads")
        yield model
        process.stdin.close()
