"""`python -m exercises [name …]`: check the exercises that are written in `yours.py`, in the current folder."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from core import __version__
from core.errors import InflightError
from core.files import require_writable, written
from exercises.checks import EXERCISES, Result, checking
from exercises.process import Process
from exercises.stubs import BLANK
from visualizer.documents.replay import replay
from visualizer.page.bundle import standalone_html

MINE = Path("yours.py")
SOLUTIONS = Path(__file__).with_name("solutions.py")
SCHEMA = "exercises/1"  # of what --json prints


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """argparse's own complaints, as one sentence."""
        self.refuse(f"{message[:1].upper()}{message[1:]}.")

    def refuse(self, sentence: str) -> NoReturn:
        self.exit(2, f"{sentence}\n")


def main(arguments: list[str] | None = None, program: str = "python -m exercises") -> int:
    parser = _Parser(prog=program, description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"exercises to check: {', '.join(EXERCISES)}; all by default",
    )
    parser.add_argument(
        "--begin",
        action="store_true",
        help="write a blank yours.py into this folder, and check nothing",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--file", type=Path, metavar="FILE.py", help="check this file instead of yours.py"
    )
    which.add_argument(
        "--solution", action="store_true", help="check the solutions instead of yours"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="which random cases are asked; 0 by default",
    )
    parser.add_argument(
        "--show",
        type=Path,
        metavar="FILE.html",
        help="write the run of the last scheduler checked, as a page",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the grade as JSON; exercises/README.md has its schema",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(EXERCISES):
        parser.refuse(f"There is no exercise {min(unknown)}; there are {', '.join(EXERCISES)}.")
    if options.begin:
        if MINE.exists():
            parser.refuse(f"There is a {MINE} in this folder.")
        shutil.copyfile(BLANK, MINE)
        print(f"Write your answers in {MINE}, then run {program} here.")
        return 0
    file = SOLUTIONS if options.solution else options.file or MINE
    if file == MINE and not MINE.exists():
        parser.refuse(f"There is no {MINE} in this folder: `{program} --begin` writes one.")
    try:
        source = file.read_bytes()
    except OSError as error:
        parser.refuse(f"{file} cannot be read: {error.strerror}.")
    trace, graded, has_case, is_unseen = None, [], False, False
    try:
        require_writable(options.show, read=[file])
        for name, result, seconds in _checked(
            options.names or list(EXERCISES), source, file.name, options.seed
        ):
            has_case = has_case or bool(result.lines)
            if result.trace is not None:
                trace, is_unseen = result.trace, not result.is_right and result.trace.complete
            graded.append(_graded(name, result, seconds))
            if not options.json:
                print(_said(name, result, seconds), flush=True)
    except InflightError as error:
        parser.refuse(str(error))
    except KeyboardInterrupt:
        return 130
    if options.json:
        about = {"schema": SCHEMA, "inflight": __version__}
        asked = {
            "file": str(file),
            "sha256": hashlib.sha256(source).hexdigest(),
            "seed": options.seed,
        }
        passed = sum(grade["passed"] for grade in graded)
        print(
            json.dumps(
                {**about, **asked, "passed": passed, "of": len(graded), "exercises": graded},
                ensure_ascii=False,
            )
        )
    elif has_case:
        print(f"To see a case for yourself, paste its lines into `python -i {file}`.")
    if options.show:
        said = f"{options.show} was not written: no scheduler ran."
        if trace is not None:
            with written(options.show) as out:
                out.write(standalone_html(replay(trace)))
            said = f"Open {options.show} in a browser" + (
                ": no run comes to the last case above, so it is a whole one." if is_unseen else "."
            )
        print(said, file=sys.stderr if options.json or trace is None else sys.stdout)
    return 0 if all(grade["passed"] for grade in graded) else 1


def _checked(
    names: Sequence[str], source: bytes, file: str, seed: int
) -> Iterator[tuple[str, Result, float]]:
    """Each exercise in a process of its own, with the seconds that it computed."""
    for name in dict.fromkeys(names):
        with Process(source, file) as process:
            going = checking(name, process.ask, seed)
            while True:
                try:
                    next(going)
                except StopIteration as end:
                    yield name, end.value, process.seconds
                    break


def _graded(name: str, result: Result, seconds: float) -> dict[str, Any]:
    fault = result.fault
    case = (
        {"lines": list(result.lines), "expected": fault.expected, "got": result.got}
        if fault and result.lines
        else None
    )
    return {
        "name": name,
        "passed": result.is_right,
        "cases": result.right,
        "of": result.of,
        "seconds": round(seconds, 4),
        "message": None if fault is None else str(fault),
        "line": None if fault is None else fault.line,
        "case": case,
    }


def _said(name: str, result: Result, seconds: float) -> str:
    """The verdict, and the case that shows why, to be pasted into Python."""
    fault = result.fault
    if fault is None:
        return f"{name}: right. {result.of} cases in {seconds:.2f} s"
    lines = [f"{name}: {_plain(str(fault))}"]
    if result.lines:
        lines[0] += f" (case {result.right + 1} of {result.of}, {seconds:.2f} s)"
        lines += ["", *(f"    {line}" for line in result.lines)]
        lines += [f"    # expected {_plain(fault.expected)}"] * (fault.expected is not None)
        lines += [f"    # got      {_plain(result.got)}"] * (result.got is not None) + [""]
    if result.printed.strip():
        lines += [
            "    It printed:",
            *(f"    | {_plain(line)}" for line in result.printed.splitlines()),
            "",
        ]
    return "\n".join(lines)


def _plain(text: str | None) -> str:
    """A learner's text, which may be anything, on a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text or "")


if __name__ == "__main__":
    sys.exit(main())
