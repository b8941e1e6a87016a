"""What a teacher sets for everybody who shares an engine: limits and policy, what is hidden, who may ask, prepared waves.

Viewers are told of every change in a message {"kind": "class"}. Knows nothing of HTTP or of teachers' tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from core.config import EngineConfig
from core.errors import InvalidConfig, InvalidRequest
from core.serving.admission import When
from core.serving.engine import ServingEngine
from core.serving.rerun import Twin
from core.serving.shadow import Shadow, shadow_config
from core.serving.stream import TokenStream
from core.workload.demo_workloads import DEMO_WORKLOADS
from core.workload.request import SamplingParams

WAVE = "wave"  # the client that a prepared wave's requests are counted under
_LIMITS = ("policy", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "prefix_caching")


class Classroom:
    """The settings of one engine. May be called from any thread; `wave` needs an event loop."""

    def __init__(self, serving: ServingEngine) -> None:
        self._serving = serving
        self._shadow: Shadow | None = None
        serving.on_change = self._tell
        serving.ask(self._tell)

    @property
    def state(self) -> dict[str, Any]:
        """The message that viewers get. changing: a run with the limits of `next` is about to begin, and `held` requests wait for it.

        record_is_full: later steps of this run are no longer kept.
        """
        serving, to_come = self._serving, self._serving.config_to_come
        return {
            **_told(serving.engine.config),
            "changing": to_come is not None,
            "next": None if to_come is None else _told(to_come),
            "held": serving.num_held,
            "record_is_full": serving.record_is_full,
            "hide_texts": serving.feed.hidden.texts,
            "hide_nicknames": serving.feed.hidden.nicknames,
            "shadow": self._shadow.policy if self._shadow is not None else None,
            "accepting": serving.accepting and serving.status != "draining",
        }

    def configure(self, *, when: When = "barrier", **limits: Any) -> EngineConfig:
        """Change limits, by their names in `EngineConfig`, the others staying as they are; when: see `ServingEngine.change`.

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
                raise InvalidConfig(f"At most {limit:,} {name} can be had here, not {value:,}.")
        serving.engine.check_config(config)
        serving.change(config, when)
        return config

    def hide(self, *, texts: bool | None = None, nicknames: bool | None = None) -> None:
        """Whether viewers are told prompts and tokens, and nicknames. Hidden parts are not sent, not even those of earlier messages."""
        feed, given = self._serving.feed, {"texts": texts, "nicknames": nicknames}
        feed.hidden = feed.hidden._replace(**{name: value for name, value in given.items() if value is not None})
        self._serving.ask(self._tell)

    def accept(self, accepting: bool) -> None:
        """Whether requests are taken; a prepared wave is taken in any case."""
        self._serving.accepting = accepting
        self._serving.ask(self._tell)

    def shadow(self, policy: str | None) -> None:
        """Show another policy beside the engine, from its next run on, which begins once the engine is idle; None for none. See `Shadow`.

        Raises InvalidConfig for a policy that cannot have the engine's limits, and for an engine beside which there is no room for another.
        """
        serving = self._serving
        if policy is not None:
            Twin.check_room(serving.engine)
            config = serving.config_to_come or serving.engine.config
            shadow_config(config, policy, serving.engine.kv_blocks[1])
        if self._shadow is not None:
            self._shadow.close()
        self._shadow, serving.on_message = None, None
        if policy is not None:
            self._shadow = Shadow(serving, policy)
            serving.on_message = self._shadow.hear
            self._shadow.hear({"kind": "pace", "steps_per_s": serving.steps_per_s})
            self._shadow.start()
            if serving.config_to_come is None:
                serving.change(config, "idle")
        serving.ask(self._tell)

    async def wave(self, requests: str | Sequence[tuple[str | Sequence[int], SamplingParams]]) -> list[TokenStream]:
        """Queue a prepared wave, given by its name in `DEMO_WORKLOADS` or as (prompt, sampling) pairs: all of it or nothing, in this order.

        Nobody needs to read the streams. Raises InvalidRequest for an unknown name, and what `ServingEngine.submit` raises.
        """
        serving = self._serving
        if isinstance(requests, str):
            if requests not in DEMO_WORKLOADS:
                raise InvalidRequest(f"There is no such wave; there are {', '.join(DEMO_WORKLOADS)}.")
            requests = DEMO_WORKLOADS[requests].requests
        checked = [(await asyncio.to_thread(serving.check, prompt, sampling), sampling) for prompt, sampling in requests]
        # Together, so that they arrive in one step: one after another, each would wait for the step that takes the one before.
        asked = [serving.submit(prompt, sampling, client=WAVE, even_if_closed=True) for prompt, sampling in checked]
        given = await asyncio.gather(*asked, return_exceptions=True)
        streams = [stream for stream in given if isinstance(stream, TokenStream)]
        refused = next((error for error in given if isinstance(error, BaseException)), None)
        if refused is not None:
            for stream in streams:
                stream.cancel()
            raise refused
        return streams

    def _tell(self) -> None:
        self._serving.feed.add({"kind": "class", **self.state})


def _told(config: EngineConfig) -> dict[str, Any]:
    return {name: value for name, value in config.to_json().items() if name in _LIMITS}
