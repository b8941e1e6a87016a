"""A cost model by the name given to a command, or from a file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from core.errors import InflightError, InvalidTrace
from core.files import AmbiguousJson, open_file, read_json
from core.simulate.cost import Cost
from core.simulate.datasheets import ACCELERATORS, MODELS
from core.simulate.fitted import NO_FIT, Linear, fit
from core.simulate.roofline import Roofline
from core.trace.trace import Trace

_FILES = (".json", ".jsonl", ".gz")
READ = (
    "This cost was read from a file: that it was fitted to such a run, and how far off it is, is"
    " taken on trust."
)


def cost_named(spec: str, opened: Callable[[Path], Trace] = Trace.load) -> Cost:
    """A cost model by name, such as `h100:8b` or `h100x4:70b`, or from a file, see `cost_in`.
    Raises InflightError for anything else.
    """
    if Path(spec).suffix in _FILES or Path(spec).is_file():
        return cost_in(Path(spec), opened)
    accelerator, colon, size = spec.partition(":")
    if colon:
        return Roofline.named(accelerator, size)
    raise InflightError(
        f"{spec!r} is no cost model; give a measured trace (.jsonl), what `fit` saved (.json), or"
        f" ACCELERATOR:SIZE, of {', '.join(ACCELERATORS)} and {', '.join(MODELS)}."
    )


def cost_in(path: Path, opened: Callable[[Path], Trace] = Trace.load) -> Linear:
    """The cost in a `.json` file written by `fit --out`; for any other file, the cost fitted to the
    run in it.

    opened: opens such a run. Raises InflightError naming the file.
    """
    if path.suffix == ".json":
        try:
            with open_file(path) as file:
                made = Linear.from_json(read_json(file.read().decode()))
            if not made.is_one_fit:
                raise InflightError(NO_FIT)
            told = (*(text for text in made.assumptions if text != READ), READ)
            return replace(made, assumptions=told)
        except (ValueError, RecursionError, InflightError) as error:
            is_told = isinstance(error, (AmbiguousJson, InflightError))
            why = error if is_told else "it is no JSON"
            raise InflightError(f"{path.name} is not what `fit --out` saves: {why}.") from None
        except OSError as error:
            raise InflightError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        return fit(opened(path))
    except InflightError as error:
        if path.name in str(error):
            raise
        at_line = isinstance(error, InvalidTrace) and error.line
        raise InflightError(f"{path.name}{',' if at_line else ':'} {error}") from None
