"""`python -m exercises [name …]`: check the exercises in `yours.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from exercises import solutions, yours
from exercises.checks import EXERCISES, Result
from visualizer.documents.replay import replay
from visualizer.page.bundle import standalone_html


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m exercises", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to check: {', '.join(EXERCISES)}; all by default")
    parser.add_argument("--solution", action="store_true", help="check the solutions instead of yours")
    parser.add_argument(
        "--show", type=Path, metavar="FILE.html", help="write the run of the last scheduler that was checked, as a page"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(EXERCISES):
        parser.error(f"there is no exercise {min(unknown)}; there are {', '.join(EXERCISES)}")
    failed, trace = 0, None
    for name in options.names or EXERCISES:
        try:
            found = EXERCISES[name](solutions if options.solution else yours)
        except NotImplementedError:
            found = Result("not written yet.")
        except Exception as error:  # whatever the learner's code raises is an answer, not a crash
            found = Result(f"it raised {type(error).__name__}: {error}")
        failed += found.fault is not None
        trace = found.trace or trace
        print(f"{name}: {found.fault or 'right.'}")
    if options.show and trace is not None:
        options.show.write_text(standalone_html(replay(trace)), encoding="utf-8")
        print(f"Open {options.show} in a browser.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
