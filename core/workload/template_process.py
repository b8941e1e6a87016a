"""What runs in the process of `core.workload.template`: chat templates, which are programs that
come with models, within limits of time and memory. It reads one question at a time, a line of JSON,
and answers with a line of JSON. It imports nothing of this project; its arguments are the folders
that hold Jinja.

The environment is that of transformers' `apply_chat_template`, so the texts are the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

SECONDS = 2  # of CPU time, for each text
# seconds of any clock: without CPU time, or on a system that does not bound it
LONGEST = 20.0
MEMORY = 256  # MiB above what Jinja alone takes
CHARACTERS = 4_000_000


def main() -> None:
    """Answer each line of standard input with a line on standard output, until the input ends."""
    sys.path += sys.argv[1:]
    compiled = compiler()
    _bound_memory()
    while line := sys.stdin.buffer.readline():
        _bound_time(SECONDS)
        answer = json.dumps(answer_to(compiled, line))
        _bound_time(0)
        print(answer, flush=True)


def answer_to(compiled: Callable[[str], Any], line: bytes) -> dict[str, str]:
    """The text, or why there is none: `exceeds` names a limit, `refuses` has the error."""
    try:
        template, variables = json.loads(line)
        pieces, left = [], CHARACTERS
        for piece in compiled(template).generate(variables):
            left -= len(piece)
            if left < 0:
                return {"exceeds": f"writes more than {CHARACTERS:,} characters"}
            pieces.append(piece)
        return {"text": "".join(pieces)}
    except MemoryError:
        return {"exceeds": f"takes more than {MEMORY} MiB"}
    except Exception as error:
        return {"refuses": str(error)[:1000] or type(error).__name__}


def compiler() -> Callable[[str], Any]:
    """A function that compiles a template from its source."""
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """Marks what an assistant said, for training; what is inside is written as it is."""

        tags = {"generation"}

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            called = self.call_method("written")
            return jinja2.nodes.CallBlock(called, [], [], body).set_lineno(line)

        def written(self, caller: Callable[[], str]) -> str:
            return caller()

    class Dict:
        """What of `dict` a template may use."""

        def __call__(self, *values: Any, **named: Any) -> dict[Any, Any]:
            return dict(*values, **named)

        def fromkeys(self, *values: Any) -> dict[Any, Any]:
            return dict.fromkeys(*values)

    class Namespace(jinja2.utils.Namespace):
        """One whose attributes do not begin with an underscore."""

        def __init__(*values: Any, **named: Any) -> None:  # `self` is a name that may be given
            own, attributes = values[0], dict(*values[1:], **named)
            for name in attributes:
                _check(name)
            jinja2.utils.Namespace.__init__(own, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _check(name)
            super().__setitem__(name, value)

    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"Chat templates cannot store underscore-prefixed attributes on a namespace, but"
                f" got {name!r}. Please rename the attribute."
            )

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda format: datetime.now().strftime(format),
        "dict": Dict(),
        "namespace": Namespace,
    }
    return lru_cache(4)(environment.from_string)


def _bound_time(seconds: int) -> None:
    """End this process by SIGPROF after so much more CPU time, in seconds; 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _bound_memory() -> None:
    with suppress(ImportError, ValueError, OSError):  # a system without such a limit
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", encoding="utf-8") as sizes:
            taken = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + (MEMORY << 20),) * 2)


if __name__ == "__main__":
    main()
