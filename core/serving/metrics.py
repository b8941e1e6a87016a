"""Metrics for Prometheus: vLLM's under our prefix, counted from the engine's events.

A dashboard made for vLLM works once `vllm:` is replaced by `inflight:`;
`assets/grafana/serving.json` is one.
"""

import math
from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.serving.stream import TokenStream
from core.trace.events import StepEvent
from core.workload.request import FinishReason

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)

PREFIX = "inflight:"


def _buckets(limits: str) -> tuple[float, ...]:
    return tuple(map(float, limits.split()))


# vLLM's histogram buckets, extended downwards for small models on a CPU.
_TTFT = _buckets(
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160"
)
_ITL = _buckets(
    "0.001 0.0025 0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
)
_SECONDS = _buckets("0.05 0.1 0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480")
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)

_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "iteration_tokens_total": ("Tokens computed in a step.", _STEP_TOKENS),
    "time_to_first_token_seconds": ("From arrival to the first token.", _TTFT),
    "inter_token_latency_seconds": ("Between two tokens of a request.", _ITL),
    "request_time_per_output_token_seconds": ("A request's mean time between tokens.", _ITL),
    "e2e_request_latency_seconds": ("From arrival to the last token.", _SECONDS),
    "request_queue_time_seconds": ("From arrival to the first pass.", _SECONDS),
    "request_inference_time_seconds": ("From the first pass to the last token.", _SECONDS),
    "request_prefill_time_seconds": ("From the first pass to the first token.", _SECONDS),
    "request_decode_time_seconds": ("From the first token to the last.", _SECONDS),
    "request_prompt_tokens": ("Prompt tokens of a request.", _TOKENS),
    "request_generation_tokens": ("Tokens generated for a request.", _TOKENS),
    "request_params_max_tokens": ("The most tokens a request asked for.", _TOKENS),
}
_COUNTERS = {
    "num_preemptions": "Preemptions, by recomputation.",
    "prompt_tokens": "Prompt tokens of requests that have their first token.",
    "generation_tokens": "Tokens generated.",
    "prefix_cache_queries": "Prompt tokens looked for in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "step_failures": "Steps that failed, with the requests in them.",
}


class ServingMetrics:
    """The metrics of an engine, in a registry of their own. engine: read on every scrape."""

    def __init__(self, model: str, engine: EngineCore) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self._prefix_caching = False
        for name, text, read in (
            ("num_requests_running", "Requests in a lane.", lambda: len(engine.running)),
            ("num_requests_waiting", "Requests waiting.", lambda: engine.num_waiting),
            (
                "kv_cache_usage_perc",
                "Share of the KV blocks in use; 1 is all.",
                # there is no pool while the size of the next one is measured
                lambda: engine.kv_blocks[0] / (engine.kv_blocks[1] or math.inf),
            ),
        ):
            self._new(Gauge, name, text).set_function(read)
        self._cache = Info(
            PREFIX + "cache_config", "Limits of the KV cache.", registry=self.registry
        )
        self._counters = {name: self._new(Counter, name, text) for name, text in _COUNTERS.items()}
        self._histograms = {
            name: self._new(Histogram, name, text, buckets=buckets)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        counter = partial(Counter, registry=self.registry)
        self._success = counter(
            PREFIX + "request_success",
            "Requests that ended, by reason.",
            [*self._labels, "finished_reason"],
        )
        self._refusals = counter(
            PREFIX + "http_refusals", "Calls refused, by HTTP status.", ["status"]
        )

    def _new(self, kind: type[_Metric], name: str, text: str, **more: Any) -> _Metric:
        return kind(PREFIX + name, text, list(self._labels), registry=self.registry, **more).labels(
            **self._labels
        )

    def count(self, name: str, number: int = 1) -> None:
        """Add to one of the counters."""
        self._counters[name].inc(number)

    def _observe(self, name: str, number: float) -> None:
        self._histograms[name].observe(max(0.0, number))

    def configured(self, config: EngineConfig, num_blocks: int) -> None:
        """A run begins with these limits."""
        self._prefix_caching = config.prefix_caching
        info = {
            "block_size": config.block_size,
            "num_gpu_blocks": num_blocks,
            "enable_prefix_caching": config.prefix_caching,
        }
        self._cache.info({name: str(value) for name, value in info.items()} | {"engine": "0"})

    def step(self, event: StepEvent) -> None:
        """Count a step."""
        self._observe("iteration_tokens_total", sum(p.tokens for p in event.passes))
        self.count("generation_tokens", len(event.sampled))
        self.count("num_preemptions", len(event.preempted))

    def admitted(self, stream: TokenStream, num_cached: int) -> None:
        """Count a request's first admission; as in vLLM, later ones do not count. num_cached:
        tokens found in the prefix cache.
        """
        if self._prefix_caching:
            self.count("prefix_cache_queries", len(stream.prompt))
            self.count("prefix_cache_hits", num_cached)

    def token(self, stream: TokenStream, t: float) -> None:
        """A token was generated at `t`; the stream's times do not include it yet."""
        times = stream.times
        if times.last_token is None:
            self.count("prompt_tokens", len(stream.prompt))
            self._observe("time_to_first_token_seconds", t - times.arrived)
        else:
            self._observe("inter_token_latency_seconds", t - times.last_token)

    def finished(self, stream: TokenStream, reason: FinishReason) -> None:
        """Count the tokens of a request that has ended, and observe its times as far as it came."""
        times = stream.times
        self._success.labels(**self._labels, finished_reason=_VLLM_REASONS[reason]).inc()
        self._observe("request_prompt_tokens", len(stream.prompt))
        self._observe("request_generation_tokens", stream.num_tokens)
        self._observe("request_params_max_tokens", stream.sampling.max_new_tokens)
        if times.first_pass is None or times.first_token is None or times.last_token is None:
            return
        self._observe("request_queue_time_seconds", times.first_pass - times.arrived)
        self._observe("request_prefill_time_seconds", times.first_token - times.first_pass)
        if reason not in ("length", "stop"):
            return  # it has no last token, only a latest
        decode = times.last_token - times.first_token
        self._observe("e2e_request_latency_seconds", times.last_token - times.arrived)
        self._observe("request_inference_time_seconds", times.last_token - times.first_pass)
        self._observe("request_decode_time_seconds", decode)
        if stream.num_tokens > 1:
            self._observe("request_time_per_output_token_seconds", decode / (stream.num_tokens - 1))

    def refused(self, status: int) -> None:
        """A call was refused with this HTTP status."""
        self._refusals.labels(status=str(status)).inc()


_VLLM_REASONS: dict[FinishReason, str] = {
    "length": "length",
    "stop": "stop",
    "cancelled": "abort",
    "error": "error",
}
