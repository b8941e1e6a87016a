"""What may be given to any command: no value that is empty, no number that is none, and no option
that does nothing. Knows no command.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand

from core.errors import InflightError
from core.trace.messages import listed

_given: ContextVar[Mapping[str, str]] = ContextVar("_given")
"""Parameters of the command that runs which were given on the command line, and the options by
which they are given.
"""


class Command(TyperCommand):
    """A command to which nothing empty is given: `--model "$MODEL"`, in a script that sets no
    MODEL, is refused and not taken for no model.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """click's; raises InflightError for a value that is empty, a number that is not finite, and
        an option that is given twice and takes one value.
        """
        told = list(args)
        rest = super().parse_args(ctx, args)
        texts, _, order = self.make_parser(ctx).parse_args(args=told)
        names = {
            param.name: (
                max(param.opts, key=len) if param.param_type_name == "option" else param.name
            )
            for param in self.params
        }
        for name, value in texts.items():
            if any(isinstance(text, str) and not text.strip() for text in _each(value)):
                raise InflightError(
                    f"{names[name]} has an empty value: give it one, or leave it out."
                )
        for param, times in Counter(order).items():
            once = param.param_type_name == "option" and not param.multiple
            if once and times > 1:
                raise InflightError(f"{names[param.name]} is given {times} times: give it once.")
        for name, value in ctx.params.items():
            if any(
                isinstance(number, float) and not math.isfinite(number) for number in _each(value)
            ):
                raise InflightError(f"{names[name]} takes a finite number, not {value}.")
        _given.set({name: names[name] for name in texts})
        return rest


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)


def refuse_idle(when: str, *names: str) -> None:
    """Raises InflightError if one of these parameters was given on the command line: it would do
    nothing. when: in which case, in words.
    """
    if idle := [option for name, option in _given.get({}).items() if name in names]:
        raise InflightError(f"{listed(idle)} {'do' if idle[1:] else 'does'} nothing {when}.")
