"""What Prometheus reads: vLLM's metrics under our prefix, counted from the engine's events.

A dashboard made for vLLM works once `vllm:` is replaced by `inflight:`;
`assets/grafana/serving.json` is one.
"""

from __future__ import annotations

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


class ServingMetrics:
    """The metrics of one engine, in a registry of its own. engine: read whenever they are."""

    def __init__(self, model: str, engine: EngineCore) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self._prefix_caching = False
        gauge, counter = partial(self._new, Gauge), partial(self._new, Counter)
        seconds, tokens = (
            partial(self._new, Histogram, buckets=buckets) for buckets in (_SECONDS, _TOKENS)
        )
        gauge("num_requests_running", "Requests in a lane.").set_function(
            lambda: len(engine.running)
        )
        gauge("num_requests_waiting", "Requests waiting.").set_function(lambda: engine.num_waiting)
        usage = gauge("kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.")
        usage.set_function(lambda: engine.kv_blocks[0] / engine.kv_blocks[1])
        self._cache = Info(
            PREFIX + "cache_config", "Limits of the KV cache.", registry=self.registry
        )
        self._preemptions = counter("num_preemptions", "Preemptions, by recomputation.")
        self._prompt_tokens = counter(
            "prompt_tokens", "Prompt tokens of requests that have their first token."
        )
        self._generation_tokens = counter("generation_tokens", "Tokens generated.")
        self._queries = counter(
            "prefix_cache_queries", "Prompt tokens looked for in the prefix cache."
        )
        self._hits = counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        reasons = [*self._labels, "finished_reason"]
        self._success = Counter(
            PREFIX + "request_success",
            "Requests that ended, by reason.",
            reasons,
            registry=self.registry,
        )
        self._step_tokens = self._new(
            Histogram, "iteration_tokens_total", "Tokens computed in a step.", buckets=_STEP_TOKENS
        )
        self._ttft = self._new(
            Histogram,
            "time_to_first_token_seconds",
            "From arrival to the first token.",
            buckets=_TTFT,
        )
        self._itl = self._new(
            Histogram,
            "inter_token_latency_seconds",
            "Between two tokens of a request.",
            buckets=_ITL,
        )
        self._tpot = self._new(
            Histogram,
            "request_time_per_output_token_seconds",
            "A request's mean time between tokens.",
            buckets=_ITL,
        )
        self._e2e = seconds("e2e_request_latency_seconds", "From arrival to the last token.")
        self._queue = seconds("request_queue_time_seconds", "From arrival to a lane.")
        self._inference = seconds(
            "request_inference_time_seconds", "From a lane to the last token."
        )
        self._prefill = seconds("request_prefill_time_seconds", "From a lane to the first token.")
        self._decode = seconds("request_decode_time_seconds", "From the first token to the last.")
        self._request_prompt = tokens("request_prompt_tokens", "Prompt tokens of a request.")
        self._request_generation = tokens(
            "request_generation_tokens", "Tokens generated for a request."
        )
        self._max_tokens = tokens(
            "request_params_max_tokens", "The most tokens a request asked for."
        )
        self.step_failures = counter(
            "step_failures", "Steps that failed, with the requests in them."
        )
        self._refusals = Counter(
            PREFIX + "http_refusals",
            "Calls refused, by HTTP status.",
            ["status"],
            registry=self.registry,
        )

    def _new(self, kind: type[_Metric], name: str, text: str, **more: Any) -> _Metric:
        return kind(PREFIX + name, text, list(self._labels), registry=self.registry, **more).labels(
            **self._labels
        )

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
        self._step_tokens.observe(sum(p.tokens for p in event.passes))
        self._generation_tokens.inc(len(event.sampled))
        self._preemptions.inc(len(event.preempted))
        self._hits.inc(sum(hit.num_cached_tokens for hit in event.kv.prefix_hits))

    def admitted(self, stream: TokenStream) -> None:
        """A request was accepted."""
        if self._prefix_caching:
            self._queries.inc(len(stream.prompt))

    def token(self, stream: TokenStream, t: float) -> None:
        """A token was generated at `t`; the stream's times do not include it yet."""
        times = stream.times
        if times.last_token is None:
            self._prompt_tokens.inc(len(stream.prompt))
            self._ttft.observe(max(0.0, t - times.arrived))
        else:
            self._itl.observe(t - times.last_token)

    def finished(self, stream: TokenStream, reason: FinishReason) -> None:
        """A request is over: count its tokens and observe its times, as far as it came."""
        times = stream.times
        self._success.labels(**self._labels, finished_reason=_VLLM_REASONS[reason]).inc()
        self._request_prompt.observe(len(stream.prompt))
        self._request_generation.observe(stream.num_tokens)
        self._max_tokens.observe(stream.sampling.max_new_tokens)
        if times.admitted is None or times.first_token is None or times.last_token is None:
            return
        self._e2e.observe(max(0.0, times.last_token - times.arrived))
        self._queue.observe(max(0.0, times.admitted - times.arrived))
        self._inference.observe(max(0.0, times.last_token - times.admitted))
        self._prefill.observe(max(0.0, times.first_token - times.admitted))
        self._decode.observe(times.last_token - times.first_token)
        if stream.num_tokens > 1:
            self._tpot.observe((times.last_token - times.first_token) / (stream.num_tokens - 1))

    def refused(self, status: int) -> None:
        """A call was refused with this HTTP status."""
        self._refusals.labels(status=str(status)).inc()


_VLLM_REASONS: dict[FinishReason, str] = {
    "length": "length",
    "stop": "stop",
    "cancelled": "abort",
    "error": "error",
}
