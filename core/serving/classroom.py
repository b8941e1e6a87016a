"""What a teacher sets for all users of a shared engine: limits and policy, what is hidden, whether
requests are accepted, the system prompt, and prepared bursts.

Every change is announced to viewers by an entry {"kind": "class"} of the log. HTTP and teachers'
tokens are handled elsewhere.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidConfig, InvalidRequest
from core.serving.engine import ServingEngine
from core.serving.engine_thread import RunStart
from core.serving.stream import TokenStream
from core.workload.demo_workloads import demo_workloads
from core.workload.request import SamplingParams, is_text

BURST = "burst"  # the client under which a prepared burst's requests are counted


class Classroom:
    """The settings of one engine. Any thread may call its methods; `burst` needs an event loop."""

    def __init__(self, serving: ServingEngine) -> None:
        self._serving = serving
        # held so that two concurrent changes do not undo each other
        self._lock = threading.Lock()
        serving.set_class(serving.settings)  # for viewers, from now on

    @property
    def state(self) -> dict[str, Any]:
        """What viewers see; see `ServingEngine.class_state`."""
        return self._serving.class_state

    def configure(self, *, start: RunStart = "barrier", **limits: Any) -> EngineConfig:
        """Change limits, by their names in `EngineConfig`, leaving the others unchanged. start: see
        `ChangeConfig`.

        Raises InvalidConfig, with nothing changed, for limits that this engine cannot have.
        """
        serving = self._serving
        with self._lock:
            before = serving.config_to_come or serving.engine.config
            config = before.under(limits.pop("policy", before.policy), **limits)
            most = serving.limits
            for name, value, limit in (
                ("lanes", config.max_num_seqs, most.max_lanes),
                ("tokens in a step's budget", config.max_num_batched_tokens, most.max_budget),
            ):
                if value > limit:
                    raise InvalidConfig(
                        f"At most {limit:,} {name} are allowed here, not {value:,}."
                    )
            serving.engine.check_config(config)
            serving.change(config, start)
        return config

    def hide(self, *, texts: bool | None = None, nicknames: bool | None = None) -> None:
        """Set whether viewers see texts and nicknames, including those of earlier messages."""
        log, given = self._serving.event_log, {"texts": texts, "nicknames": nicknames}
        with self._lock:
            log.hidden = replace(
                log.hidden, **{name: value for name, value in given.items() if value is not None}
            )
        self._set()

    def accept(self, accepting: bool) -> None:
        """Set whether requests are accepted; prepared bursts always are."""
        self._set(accepting=accepting)

    def tell_first(self, system: str) -> None:
        """Set the system prompt of a model with a chat template, said before each question of a
        person; an empty one is not said. Raises InvalidRequest for any other model, and for a text
        that is too long.
        """
        self._set(system=self.checked_system(system))

    def checked_system(self, system: str) -> str:
        """The text that `tell_first` would set; raises the same errors."""
        most = self._serving.limits.max_system_characters
        if not self._serving.is_asked_by_messages:
            raise InvalidRequest("The model has no chat template, so it takes no system prompt.")
        if not is_text(system) or len(system) > most:
            raise InvalidRequest(f"A system prompt is a text of at most {most:,} characters.")
        return system.strip()

    def _set(self, **changed: Any) -> None:
        with self._lock:
            self._serving.set_class(replace(self._serving.settings, **changed))

    async def burst(
        self, requests: str | Sequence[tuple[str | Sequence[int], SamplingParams]]
    ) -> list[TokenStream]:
        """Queue a prepared burst, given by its name in `demo_workloads` or as (prompt, sampling)
        pairs: all of it or nothing, in this order. A text is asked as a person asks it.

        The streams need not be read. Raises InvalidRequest for an unknown name, and what
        `ServingEngine.submit` raises.
        """
        serving = self._serving
        if isinstance(requests, str):
            bursts = demo_workloads(serving.is_asked_by_messages)
            if requests not in bursts:
                raise InvalidRequest(f"There is no such burst; there are {', '.join(bursts)}.")
            requests = bursts[requests].requests
        with serving.receive(BURST, len(requests), even_if_closed=True) as call:
            written = [(await call.written(prompt), sampling) for prompt, sampling in requests]
            checked = [
                (await call.check(prompt, sampling), sampling, conversation)
                for (prompt, conversation), sampling in written
            ]
            # Submitted together, so that they arrive in one step: one after another, each would
            # wait for the step that accepts the previous one.
            asked = [
                call.submit(prompt, sampling, conversation=said)
                for prompt, sampling, said in checked
            ]
            given = await asyncio.gather(*asked, return_exceptions=True)
        streams = [stream for stream in given if isinstance(stream, TokenStream)]
        refused = next((error for error in given if isinstance(error, BaseException)), None)
        if refused is not None:
            for stream in streams:
                stream.cancel()
            raise refused
        return streams
