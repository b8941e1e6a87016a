"""Chat templates, run in a process of their own: they are programs that come with models, and may
loop forever or ask for all memory. The process starts with the first text, and again after a
template that passed a limit of time or memory, which `template_process` sets. A template that
passed a limit and never wrote a text is refused for a while without being run, since each attempt
would keep all others waiting.
"""

import atexit
import importlib.util
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import InvalidRequest, Unavailable, first_sentence
from core.workload import template_process
from core.workload.template_process import CHARACTERS, LONGEST, SECONDS

_FOR = 60.0  # seconds for which a template is refused
_KNOWN = 64  # templates that are remembered
_LINE = 12 * CHARACTERS + 10_000  # bytes of an answer: escaped, a character takes 12 at most


class TemplateProcess:
    """The process that runs templates, one at a time; may be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # by the hashes of templates: that they have written a text; until when, and how, those that
        # have not are refused
        self._wrote: dict[int, None] = {}
        self._refused: dict[int, tuple[float, dict[str, Any]]] = {}
        atexit.register(self.end)

    def text(self, template: str, variables: dict[str, Any]) -> str:
        """The text that a template writes. Raises InvalidRequest if the template refuses or passes
        a limit, and Unavailable if no process can be started.
        """
        with self._lock:
            answer = self._answer(template, variables)
        if "text" in answer:
            return str(answer["text"])
        why = answer.get("exceeds") or (
            f"refuses these messages: {first_sentence(ValueError(answer['refuses']))}"
        )
        raise InvalidRequest(f"the model's chat template {why}.", param="messages")

    def _answer(self, template: str, variables: dict[str, Any]) -> dict[str, Any]:
        key = hash(template)
        until, answer = self._refused.get(key, (0.0, {}))
        if time.monotonic() < until:
            return answer
        answer = self._ask(json.dumps([template, variables]).encode() + b"\n")
        if "text" in answer:
            _remember(self._wrote, key, None)
        elif "exceeds" in answer:
            self.end()  # what it has taken is free again
            if key not in self._wrote:
                _remember(self._refused, key, (time.monotonic() + _FOR, answer))
        return answer

    def _ask(self, asked: bytes) -> dict[str, Any]:
        process, began = self._running(), time.monotonic()
        assert process.stdin is not None and process.stdout is not None
        overdue = threading.Timer(LONGEST, process.kill)
        overdue.start()
        line = b""
        try:
            with suppress(OSError):  # it has ended: there is no line then either
                process.stdin.write(asked)
                process.stdin.flush()
            line = process.stdout.readline(_LINE)
        finally:
            overdue.cancel()
            ended = None if line.endswith(b"\n") else self.end()
        if ended is None:
            return dict(json.loads(line))
        if ended == -getattr(signal, "SIGPROF", 0) or time.monotonic() - began >= LONGEST:
            return {"exceeds": f"takes longer than {SECONDS} s"}
        return {"exceeds": "ends the process that runs it"}

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.end()
            found = [importlib.util.find_spec(name) for name in ("jinja2", "markupsafe")]
            folders = {str(Path(spec.origin).parents[1]) for spec in found if spec and spec.origin}
            try:
                self._process = subprocess.Popen(
                    # -I -S: what else is installed is neither found nor run
                    [sys.executable, "-I", "-S", template_process.__file__, *folders],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a Ctrl-C is not for it
                )
            except OSError as error:
                raise Unavailable(
                    "No process can be started to run the model's chat template:"
                    f" {error.strerror or error}."
                ) from None
        return self._process

    def end(self) -> int | None:
        """End the process. Returns its exit code, or None if there is no process."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what it has not read is lost
                assert pipe is not None
                pipe.close()
        return code


def _remember(kept: dict[int, Any], key: int, value: object) -> None:
    """Add the latest entry, and drop the oldest if there are too many."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _KNOWN:
        del kept[next(iter(kept))]


class TemplateHere(TemplateProcess):
    """The same in a browser's tab, which cannot start a process. A template that loops forever is
    ended by the visitor, together with the worker that runs it.
    """

    def _ask(self, asked: bytes) -> dict[str, Any]:
        return template_process.answer_to(template_process.compiler(), asked)
