"""vLLM's own steps on our presets, as traces: one command.

    PYTHONPATH=.:tests python -m engines.vllm short-and-long kv-pressure --out FOLDER

vLLM needs an environment of its own: name its Python by `--python` or `INFLIGHT_VLLM_PYTHON`, or
run the command by it. The raw recording and the trace of each preset are kept. `VllmProcess` is the
engine as comparisons use it: a process that runs a workload on request.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from core.errors import InflightError
from core.recorders.convert import import_recording
from core.recorders.texts import tokenizer_of
from core.workload.presets import preset
from engines.task import EngineTask
from measure.bench.piped import PipedProcess
from measure.bench.vllm import PYTHON, RUN_S, START_S, environment, vllm_python

_ROOT = Path(__file__).resolve().parents[2]


class VllmProcess:
    """An engine that is loaded once and runs the same requests again and again. Use it in a `with`;
    raises InflightError if it cannot.

    python: of an environment with vLLM. threads: for its computing, None for its own choice.
    version: of vLLM.
    """

    def __init__(self, asked: EngineTask, python: str, threads: int | None = None) -> None:
        self._runs = 0
        ours = {"PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'tests'}"}
        self._process = PipedProcess(
            "vLLM", (python, "-m", "engines.drive"), {**environment(threads), **ours}
        )
        try:
            self.version: str = self._process.ask(asked.to_json(), START_S)["ready"]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> VllmProcess:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self) -> tuple[float, Path]:
        """Seconds from the first request handed over to the end of the last step, and where that
        run is recorded until this is closed.
        """
        self._runs += 1
        path = self._process.folder / f"run-{self._runs}.raw.jsonl"
        return self._process.ask(str(path), RUN_S)["seconds"], path

    def close(self) -> None:
        """End the process and remove its recordings."""
        self._process.close()


def require_python(python: str | None) -> str:
    """The one given, or the one named in the environment; raises InflightError where there is
    neither.
    """
    found = python or vllm_python()
    if found is None:
        raise InflightError(
            f"vLLM needs an environment of its own: name its Python by --python or {PYTHON}."
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m engines.vllm", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("presets", nargs="+", metavar="PRESET")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument(
        "--python",
        default=vllm_python() or sys.executable,
        help=f"of a vLLM environment; by default ${PYTHON}",
    )
    given = parser.parse_args(arguments)
    try:
        for name in given.presets:
            asked = EngineTask.of(preset(name), tokenizer_of(preset(name).model))
            with VllmProcess(asked, given.python) as engine:
                seconds, path = engine.run()
                given.out.mkdir(parents=True, exist_ok=True)
                (given.out / f"{name}.raw.jsonl").write_bytes(path.read_bytes())
            trace = import_recording(given.out / f"{name}.raw.jsonl")
            trace.save(given.out / f"{name}.jsonl")
            print(
                f"{given.out / name}.jsonl: vLLM {engine.version}, {len(trace.events)} steps,"
                f" {seconds:.2f} s"
            )
    except InflightError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
