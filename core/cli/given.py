"""Checks of what is given to any command: no empty value, no number that is not finite, and no
option without effect. It knows no particular command.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand

from core.errors import InflightError
from core.trace.messages import listed

_given: ContextVar[Mapping[str, str]] = ContextVar("_given")
"""The parameters of the running command that were given on the command line, with their options.
"""


class Command(TyperCommand):
    """A command that refuses empty values: `--model "$MODEL"` in a script without a MODEL is an
    error, not the default.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does. Raises InflightError for an empty value, for a number that is not
        finite, and for an option that takes one value and is given twice.
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
    """Raises InflightError if one of these parameters was given on the command line, since it would
    have no effect. when: in which case, as the end of the sentence.
    """
    if idle := [option for name, option in _given.get({}).items() if name in names]:
        raise InflightError(f"{listed(idle)} {'do' if idle[1:] else 'does'} nothing {when}.")
