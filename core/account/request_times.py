"""The times of each request of a run, read from its events, and limits for them (SLOs)."""

import math
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any

from core.account.walk import walk
from core.errors import InflightError, require
from core.trace.trace import Trace, require_trace


@dataclass(frozen=True)
class SLOs:
    """The limits that a good request must meet, in seconds; None sets no limit. Raises
    InflightError for a limit that is not positive and finite.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            require(value, (int, float, NoneType), "An SLO is a number of seconds above 0")
            if value is not None and not 0 < value < math.inf:
                raise InflightError(
                    f"An SLO must be a number of seconds above 0; {f.name} is {value!r}."
                )

    def met(self, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None) -> bool:
        """Whether a request ended by itself within every limit; one token has no TPOT."""
        if e2e_s is None or ttft_s is None:
            return False
        times = ((ttft_s, self.ttft_s), (tpot_s, self.tpot_s), (e2e_s, self.e2e_s))
        return all(limit is None or time is None or time <= limit for time, limit in times)


@dataclass
class RequestTimes:
    """The times of one request, in steps and seconds; None for what has not happened, or happened
    in steps that are not shown.

    is_unseen: its first pass was in such a step. is_cut: it ended in such a step, so its last
    tokens are unknown. num_computed: positions computed for it. num_recomputed: those of them that
    had been computed before and were discarded. num_read: positions of its cache that these passes
    read, including their own.
    """

    request: str
    num_prompt_tokens: int
    arrival: float | None = None
    first_pass: float | None = None
    first_step: int | None = None
    token_times: list[float | None] = field(default_factory=list)
    is_unseen: bool = False
    arrival_step: int | None = None
    first_token_step: int | None = None
    num_computed: int = 0
    num_recomputed: int = 0
    num_read: int = 0
    finish_step: int | None = None
    finish_reason: str | None = None
    is_cut: bool = False

    @property
    def num_tokens(self) -> int:
        """New tokens so far."""
        return len(self.token_times)

    @property
    def is_done(self) -> bool:
        """Whether it ended by itself, by its length or a stop."""
        return self.finish_reason in ("length", "stop")

    @property
    def ttft_s(self) -> float | None:
        """Seconds from its arrival to its first token; None before that."""
        return self._after_arrival(self.token_times[0] if self.token_times else None)

    @property
    def queue_s(self) -> float | None:
        """Seconds from its arrival to the first pass that computed it."""
        return self._after_arrival(self.first_pass)

    @property
    def itl_s(self) -> list[float]:
        """Seconds between consecutive tokens, in order."""
        pairs = zip(self.token_times, self.token_times[1:], strict=False)
        return [
            later - earlier for earlier, later in pairs if earlier is not None and later is not None
        ]

    @property
    def e2e_s(self) -> float | None:
        """Seconds from its arrival to its last token; None until it has ended by itself."""
        return self._after_arrival(self._last)

    def _after_arrival(self, t: float | None) -> float | None:
        return None if t is None or self.arrival is None else t - self.arrival

    @property
    def _last(self) -> float | None:
        """When its last token came; None if unknown, or if it did not end by itself."""
        return (
            self.token_times[-1] if self.is_done and self.num_tokens and not self.is_cut else None
        )

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds for each token after the first; None for one token, or before its end."""
        first, last = self.token_times[0] if self.num_tokens > 1 else None, self._last
        return None if first is None or last is None else (last - first) / (self.num_tokens - 1)

    def meets(self, slos: SLOs) -> bool:
        """Whether it ended by itself within every limit; see `SLOs.met`."""
        return slos.met(self.ttft_s, self.tpot_s, self.e2e_s)

    def to_json(self) -> dict[str, Any]:
        """Plain data, times rounded to microseconds, without the token times."""
        return {
            "request": self.request,
            "prompt_tokens": self.num_prompt_tokens,
            "output_tokens": self.num_tokens,
            "first_step": self.first_step,
            "finish_step": self.finish_step,
            "finish_reason": self.finish_reason,
            **{
                name: rounded(getattr(self, name))
                for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s")
            },
        }


def request_times(trace: Trace) -> dict[str, RequestTimes]:
    """The times of every request by id, including those that have not arrived."""
    require_trace(trace)
    times = {request: RequestTimes(request, len(ids)) for request, ids in trace.prompts.items()}
    for event, _, rows in walk(trace):
        for arrived in event.newcomers:
            mine = times[arrived.request]
            mine.arrival, mine.arrival_step = arrived.t, event.step
        for carried in event.resumed.carried if event.resumed else ():
            mine = times[carried.request]
            if carried.tokens and not mine.token_times:
                mine.first_token_step = event.step
            mine.token_times += [None] * len(carried.tokens)
            has_run = carried.lane is not None or carried.was_preempted
            mine.is_unseen |= mine.first_pass is None and has_run
        for request, computed in rows.items():
            mine = times[request]
            if mine.first_pass is None and not mine.is_unseen:
                first = event.passes[computed[0].segment.pass_index]
                mine.first_pass, mine.first_step = first.t_start, event.step
            for segment, again, _ in computed:
                mine.num_computed += segment.length
                mine.num_recomputed += again
                mine.num_read += segment.kv_len
        for sampled in event.sampled:
            mine = times[sampled.request]
            if not mine.token_times:
                mine.first_token_step = event.step
            mine.token_times.append(event.passes[sampled.pass_index].t_end)
        for finished in event.resumed.ended if event.resumed else ():
            times[finished.request].is_cut = True
        for finished in event.ends:
            mine = times[finished.request]
            mine.finish_step, mine.finish_reason = event.step, finished.finish_reason
    return times


def rounded(value: float | None) -> float | None:
    """Seconds rounded to the microsecond; None stays None."""
    return None if value is None else round(float(value), 6)
