"""`python -m exercises [name …]`: check the exercises in `yours.py`, in the current folder or beside this file."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import traceback
from pathlib import Path
from types import ModuleType

from exercises import solutions
from exercises.checks import EXERCISES, Result
from visualizer.documents.replay import replay
from visualizer.page.bundle import standalone_html

BLANK = Path(__file__).with_name("yours.py")  # has no answers, unless they are written there


def main(arguments: list[str] | None = None, program: str = "python -m exercises") -> int:
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"exercises to check: {', '.join(EXERCISES)}; all by default")
    parser.add_argument("--begin", action="store_true", help="write a blank yours.py into this folder, and check nothing")
    parser.add_argument("--solution", action="store_true", help="check the solutions instead of yours")
    parser.add_argument("--show", type=Path, metavar="FILE.html", help="write the run of the last scheduler checked, as a page")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(EXERCISES):
        parser.error(f"there is no exercise {min(unknown)}; there are {', '.join(EXERCISES)}")
    mine = Path("yours.py")
    if options.begin:
        if mine.exists():
            parser.error("there is a yours.py in this folder")
        shutil.copyfile(BLANK, mine)
        print(f"Write your answers in {mine}, then run {program} here.")
        return 0
    try:
        answers = solutions if options.solution else _read(mine if mine.exists() else BLANK)
    except Exception as error:  # as below
        parser.error(f"yours.py cannot be read: {type(error).__name__}: {error}")
    failed, trace = 0, None
    for name in options.names or EXERCISES:
        try:
            found = EXERCISES[name](answers)
        except NotImplementedError:
            found = Result("not written yet.")
        except Exception as error:  # whatever the learner's code raises is an answer, not a crash
            found = Result(_raised(error))
        failed += found.fault is not None
        trace = found.trace or trace
        print(f"{name}: {found.fault or 'right.'}")
    if options.show and trace is not None:
        options.show.write_text(standalone_html(replay(trace)), encoding="utf-8")
        print(f"Open {options.show} in a browser.")
    return 1 if failed else 0


def _raised(error: Exception) -> str:
    """What went wrong in the learner's code, and on which line."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return f"there is no {error.name} in yours.py."
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == BLANK.name]
    where = f" in line {lines[-1]} of {BLANK.name}" if lines else ""
    return f"it raised {type(error).__name__}{where}: {error}"


def _read(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("yours", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
