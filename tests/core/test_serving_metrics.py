"""What each metric of the server means, by hand: requests that are served one after the other, on a
clock whose steps take ten milliseconds.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from core.config import EngineConfig
from core.errors import InvalidRequest
from core.serving.event_log import EngineLog
from core.serving.limits import Places, ServingLimits
from core.serving.metrics import PREFIX, ServingMetrics
from core.serving.output_processor import OutputProcessor
from core.serving.stream import TokenStream, step_failed
from core.trace.trace import Trace
from worlds.small import memory_engine
from worlds.visual import record, request


def told_of(trace: Trace) -> ServingMetrics:
    """The metrics of a server whose engine took these steps. One more client left before it was in
    the engine, one asked for what cannot be, and one was in a step that failed.
    """
    metrics = ServingMetrics("m", memory_engine())

    async def serve() -> None:
        outputs = OutputProcessor(None, metrics, EngineLog())
        places = Places(ServingLimits())
        outputs.begin_run(0, trace.header, 0.0)
        for asked, prompt in trace.asked.values():
            stream = TokenStream(
                asked.id,
                prompt,
                asked.sampling,
                places.take("c")[0],
                None,
                0.0,
                lambda stream: None,
            )
            outputs.begin(asked, prompt)
            outputs.queued(stream, asked)
        for event in trace.events:
            for sampled in event.sampled:
                outputs.add(sampled.request, sampled.token_id)
            outputs.process(event)
        gone, invalid, failed = (
            TokenStream(
                name, (1, 2), asked.sampling, places.take("c")[0], None, 0.0, lambda stream: None
            )
            for name in ("gone", "invalid", "failed")
        )
        outputs.cancelled(gone)
        outputs.fail(invalid, InvalidRequest("It could never run."))
        outputs.fail(failed, step_failed())

    asyncio.run(serve())
    return metrics


def value(metrics: ServingMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(
        PREFIX + name, {"model_name": "m", "engine": "0", **labels}
    )


def test_every_number_by_hand() -> None:
    """`a` has a lane from 0 ms and its tokens at 1, 11, 21 and 31; `b`, two blocks of whose prompt
    are cached, from 40 ms, and 41 and 51.
    """
    limits = EngineConfig(max_num_seqs=1, block_size=4, prefix_caching=True)
    metrics = told_of(record(limits, request("a", 9, 4), request("b", 9, 2)))
    counted = {
        "prompt_tokens": 18,
        "generation_tokens": 6,
        "prefix_cache_queries": 18,
        "prefix_cache_hits": 8,
        "num_preemptions": 0,
    }
    assert {name: value(metrics, f"{name}_total") for name in counted} == counted
    milliseconds = {
        "time_to_first_token_seconds": (2, 1 + 41),
        "inter_token_latency_seconds": (4, 30 + 10),
        "request_time_per_output_token_seconds": (2, 10 + 10),
        "e2e_request_latency_seconds": (2, 31 + 51),
        "request_queue_time_seconds": (2, 0 + 40),
        "request_inference_time_seconds": (2, 31 + 11),
        "request_prefill_time_seconds": (2, 1 + 1),
        "request_decode_time_seconds": (2, 30 + 10),
    }
    for name, (times, total) in milliseconds.items():
        assert value(metrics, f"{name}_count") == times and value(
            metrics, f"{name}_sum"
        ) == pytest.approx(total / 1000), name
    assert value(metrics, "iteration_tokens_total_sum") == 9 + 3 + 1 + 1
    assert (
        value(metrics, "request_prompt_tokens_sum") == 9 + 9 + 2 + 2
        and value(metrics, "request_generation_tokens_sum") == 4 + 2
    )
    assert value(metrics, "request_success_total", finished_reason="length") == 2
    assert value(metrics, "request_success_total", finished_reason="abort") == 1
    # what could never run is no failure
    assert value(metrics, "request_success_total", finished_reason="error") == 1


def test_an_answer_of_one_token_has_no_time_between_tokens() -> None:
    limits = EngineConfig(max_num_seqs=2, block_size=4)
    metrics = told_of(record(limits, request("a", 4, 1), request("b", 4, 3)))
    assert value(metrics, "e2e_request_latency_seconds_count") == 2
    for name in ("request_time_per_output_token_seconds", "inter_token_latency_seconds"):
        assert value(metrics, f"{name}_sum") == pytest.approx(0.02 if "inter" in name else 0.01)
    assert value(metrics, "request_time_per_output_token_seconds_count") == 1


def test_who_leaves_has_no_end() -> None:
    """`b` has three tokens when its client leaves; `a` has its last at 31 ms."""
    leaves = replace(request("b", 4, 9), leaves_after=3)
    metrics = told_of(record(EngineConfig(max_num_seqs=2), request("a", 4, 4), leaves))
    assert value(metrics, "request_success_total", finished_reason="abort") == 2
    assert value(metrics, "generation_tokens_total") == 4 + 3
    counted = {
        "queue_time": 2,
        "prefill_time": 2,
        "inference_time": 1,
        "decode_time": 1,
        "time_per_output_token": 1,
    }
    for name, count in counted.items():
        assert value(metrics, f"request_{name}_seconds_count") == count, name
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(0.031)


def test_pads_are_no_tokens_and_nothing_is_looked_for_where_nothing_is_cached() -> None:
    metrics = told_of(
        record(
            EngineConfig(policy="static", max_num_seqs=2), request("a", 3, 4), request("b", 5, 2)
        )
    )
    assert value(metrics, "iteration_tokens_total_sum") == 8 + 2 + 1 + 1
    assert (
        value(metrics, "prefix_cache_queries_total")
        == value(metrics, "prefix_cache_hits_total")
        == 0
    )


def test_who_is_preempted_has_waited_once_and_is_looked_up_once() -> None:
    """`b` loses its lane to `a` and comes back: both had one from the start."""
    limits = EngineConfig(max_num_seqs=2, block_size=4, prefix_caching=True)
    trace = record(limits, request("a", 6, 8), request("b", 6, 8, first=9), num_blocks=5)
    assert [len(event.admitted) for event in trace.events if event.admitted] == [2, 1]
    assert sum(hit.num_cached_tokens for event in trace.events for hit in event.kv.prefix_hits)
    metrics = told_of(trace)
    assert value(metrics, "num_preemptions_total") == 1
    assert value(metrics, "prefix_cache_queries_total") == 6 + 6
    assert value(metrics, "prefix_cache_hits_total") == 0  # what it finds again is its own
    assert value(metrics, "request_queue_time_seconds_sum") == 0


def test_nothing_is_in_use_while_there_is_no_pool() -> None:
    engine = memory_engine(max_num_seqs=1, block_size=4)
    engine.add_request(request("a", 9, 4))
    engine.step()
    metrics = ServingMetrics("m", engine)
    assert value(metrics, "kv_cache_usage_perc") > 0
    engine._drop_pool()
    assert value(metrics, "kv_cache_usage_perc") == 0
