"""What a teacher sets for all users of a shared engine: limits and policy, what is hidden, whether requests are accepted, prepared bursts.

Every change is announced to viewers by an entry {"kind": "class"} of the log. HTTP and teachers' tokens are handled elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidConfig, InvalidRequest
from core.serving.engine import ServingEngine
from core.serving.messages import RunStart
from core.serving.rerun import Twin
from core.serving.shadow import Shadow
from core.serving.stream import TokenStream
from core.workload.demo_workloads import DEMO_WORKLOADS
from core.workload.request import SamplingParams

BURST = "burst"  # the client under which a prepared burst's requests are counted


class Classroom:
    """The settings of one engine. All methods may be called from any thread; `burst` needs an event loop."""

    def __init__(self, serving: ServingEngine) -> None:
        self._serving = serving
        self._shadow: Shadow | None = None
        serving.set_class(serving.settings)  # for viewers, from now on

    @property
    def state(self) -> dict[str, Any]:
        """What viewers see; see `ClassState`."""
        return self._serving.class_state.to_json()

    def configure(self, *, start: RunStart = "barrier", **limits: Any) -> EngineConfig:
        """Change limits, by their names in `EngineConfig`, leaving the others as they are; start: see `ChangeConfig`.

        Raises InvalidConfig, with nothing changed, for limits that this engine cannot have.
        """
        serving = self._serving
        before = serving.config_to_come or serving.engine.config
        config = before.under(limits.pop("policy", before.policy), **limits)
        most = serving.limits
        for name, value, limit in (
            ("lanes", config.max_num_seqs, most.max_lanes),
            ("tokens in a step's budget", config.max_num_batched_tokens, most.max_budget),
        ):
            if value > limit:
                raise InvalidConfig(f"At most {limit:,} {name} are allowed here, not {value:,}.")
        serving.engine.check_config(config)
        serving.change(config, start)
        return config

    def hide(self, *, texts: bool | None = None, nicknames: bool | None = None) -> None:
        """Set whether viewers see prompts and tokens, and nicknames. Hidden parts are not sent, not even for earlier messages."""
        log, given = self._serving.event_log, {"texts": texts, "nicknames": nicknames}
        log.hidden = replace(
            log.hidden, **{name: value for name, value in given.items() if value is not None}
        )
        self._serving.set_class(self._serving.settings)

    def accept(self, accepting: bool) -> None:
        """Set whether requests are accepted; a prepared burst always is."""
        self._serving.set_class(replace(self._serving.settings, accepting=accepting))

    def shadow(self, policy: str | None) -> None:
        """Run another policy beside the engine, from its next run on, which begins once the engine is idle; None for none. See `Shadow`.

        Raises InvalidConfig for a policy that does not allow the engine's limits, and if there is no room for a second engine.
        """
        serving = self._serving
        if policy is not None:
            Twin.check_room(serving.engine)
            config = serving.config_to_come or serving.engine.config
            config.under(policy, num_blocks=serving.engine.kv_blocks[1])
        if self._shadow is not None:
            self._shadow.close()
        self._shadow = None
        if policy is not None:
            self._shadow = Shadow(serving, policy)
            self._shadow.start()
            if serving.config_to_come is None:
                serving.change(config, "idle")
        serving.set_class(replace(serving.settings, shadow=policy))

    async def burst(
        self, requests: str | Sequence[tuple[str | Sequence[int], SamplingParams]]
    ) -> list[TokenStream]:
        """Queue a prepared burst, given by its name in `DEMO_WORKLOADS` or as (prompt, sampling) pairs: all of it or nothing, in this order.

        The streams need not be read. Raises InvalidRequest for an unknown name, and what `ServingEngine.submit` raises.
        """
        serving = self._serving
        if isinstance(requests, str):
            if requests not in DEMO_WORKLOADS:
                raise InvalidRequest(
                    f"There is no such burst; there are {', '.join(DEMO_WORKLOADS)}."
                )
            requests = DEMO_WORKLOADS[requests].requests
        with serving.receive(BURST, len(requests), even_if_closed=True) as call:
            checked = [
                (await call.check(prompt, sampling), sampling) for prompt, sampling in requests
            ]
            # Submitted together, so that they arrive in one step: one after another, each would wait for the step that accepts the previous one.
            asked = [call.submit(prompt, sampling) for prompt, sampling in checked]
            given = await asyncio.gather(*asked, return_exceptions=True)
        streams = [stream for stream in given if isinstance(stream, TokenStream)]
        refused = next((error for error in given if isinstance(error, BaseException)), None)
        if refused is not None:
            for stream in streams:
                stream.cancel()
            raise refused
        return streams
