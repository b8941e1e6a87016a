"""The figures that scripts publish, of measurements made by hand; what is asked of a server, and
what is read of the system.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from core.cli.options import DeviceOptions
from core.config import DEFAULT_MODEL
from core.errors import InflightError
from core.measure.baselines.records import BaselineRequest
from core.measure.baselines.transformers_continuous import Variant
from core.workload.presets import PRESETS
from core.workload.request import Request, SamplingParams
from measure import (
    engine_in_tab,
    fits,
    load,
    plans,
    record_gpu,
    recorder_cost,
    start,
    threads,
    viewers,
    vllm_traffic,
)
from measure.day import held
from measure.plans import Prediction
from measure.serve import Answer, _ask, _numbers, options_of
from measure.visitors import Row, Visit, _p95, row_of
from visualizer.jobs.limits import IN_TAB, check
from worlds.commands import command
from worlds.static_host import hosted

TRACES = fits.OURS


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Its lines, each without what only sets columns apart."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_what_viewers_cost_is_the_median_of_the_ratios_within_rounds(capsys):
    seen = [
        {"messages_per_viewer_s": rate, "kib_per_viewer_s": kib, "skips": skips}
        for rate, kib, skips in ((10.004, 2.0, 1), (12.0, 3.04, 0), (11.0, 5.0, 2))
    ]
    found = viewers.figures([(100.0, 90.0), (200.0, 198.0), (50.0, 40.0)], seen)
    assert found == {
        "tok_s_alone": [100.0, 200.0, 50.0],
        "tok_s_watched": [90.0, 198.0, 40.0],
        "ratio": 0.9,
        "ratios": [0.9, 0.99, 0.8],
        "messages_per_viewer_s": 11.0,
        "kib_per_viewer_s": 3.0,
        "skips": 3,
    }
    viewers._print({"viewers": 7, **found})
    assert printed(capsys) == [
        "round tok/s alone tok/s watched cost",
        "1 100.0 90.0 10.0 %",
        "2 200.0 198.0 1.0 %",
        "3 50.0 40.0 20.0 %",
        "7 viewers, 11 messages and 3 KiB a second each, 3 skips: they cost 10.0 % of the engine's"
        " tokens a second (median of the rounds).",
    ]


def test_what_clients_saw_is_counted_from_when_each_sent():
    found = _numbers(
        [
            Answer(0.0, tokens=[5, 6, 7], times=[1.0, 1.5, 2.5]),
            Answer(1.0, tokens=[7], times=[1.25]),
        ],
        2.0,
    )
    assert (found["wall_s"], found["output_tok_s"]) == (2.0, 2.0)
    assert {
        name: (found[name]["count"], found[name]["mean"], found[name]["max"])
        for name in ("ttft_s", "itl_s", "e2e_s")
    } == {"ttft_s": (2, 0.625, 1.0), "itl_s": (2, 0.75, 1.0), "e2e_s": (2, 1.375, 2.5)}


def token(index: int, name: str = "a") -> dict[str, Any]:
    return {"id": name, "index": index, "token_id": 40 + index}


def last(tokens: int) -> dict[str, Any]:
    return {
        "id": "a",
        "usage": {"completion_tokens": tokens},
        **{"queue_s": 0.5, "ttft_s": 1.0, "e2e_s": None},
    }


def answered(events: list[dict[str, Any]], ignores_eos: bool = True, status: str = "200 OK") -> Any:
    """What is asked of a server that answers with these events and hangs up, and what is made of
    them.
    """
    asked: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0])
        asked.append(json.loads(await reader.readexactly(length)))
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{lines}".encode())
        await writer.drain()
        writer.close()

    async def call() -> Answer:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            sampling = SamplingParams(3, ignore_eos=ignores_eos)
            request = Request("r", prompt_token_ids=(8, 9), sampling=sampling)
            return await _ask(f"http://{host}:{port}", request)

    return asyncio.run(call()), asked


@pytest.mark.parametrize("ignores_eos", [True, False])
def test_a_server_is_asked_for_what_the_engine_is(ignores_eos):
    events = [token(0), token(1), last(2)]
    answer, asked = answered(events, ignores_eos)
    assert asked == [{"prompt": [8, 9], "max_tokens": 3, "stream": True, "ignore_eos": ignores_eos}]
    assert (answer.id, answer.tokens, len(answer.times)) == ("a", [40, 41], 2)
    assert (answer.engine["queue_s"], answer.engine["ttft_s"]) == (0.5, 1.0)
    assert math.isnan(answer.engine["e2e_s"])


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], "The server hung up after 0 tokens."),
        ([token(0), token(1)], "The server hung up after 2 tokens."),
        ([token(1)], "Token 1 came where token 0 was due."),
        ([token(0), token(0)], "Token 0 came where token 1 was due."),
        ([token(0), token(1, "b")], "The server answered twice."),
        ([token(0), last(1), last(1)], "The server answered twice."),
        ([token(0), last(2)], "1 of 2 tokens came."),
        ([token(0), {"error": {"message": "no"}}], "The server failed: no"),
    ],
)
def test_an_answer_that_is_not_whole_and_in_order_is_none(events, says):
    with pytest.raises(InflightError) as refused:
        answered(events)
    assert str(refused.value) == says


def test_a_refusal_of_the_server_is_told():
    with pytest.raises(InflightError, match="The server refused a request: data: "):
        answered([{"error": 1}], status="400 Bad Request")


@pytest.mark.parametrize("where", [DeviceOptions("cpu", "float32", 3), DeviceOptions()])
def test_a_server_has_the_settings_of_the_engine_beside_it(where):
    """As the command itself reads them."""
    limits = {
        "max_num_seqs": 5,
        "num_blocks": 77,
        "chunked_prefill": False,
        "prefix_caching": True,
    }
    read = command("serve").make_context("serve", options_of("some-model", where, limits)).params
    assert {name: read[name] for name in limits} == limits
    assert (read["model"], read["device"], read["dtype"], read["threads"]) == (
        "some-model",
        where.device,
        where.dtype,
        where.threads,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_what_a_process_holds_has_the_children_of_all_its_threads(tmp_path):
    before, is_over = held(os.getpid(), tmp_path), threading.Event()
    started = threading.Event()

    def keep_a_child() -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            started.set()
            is_over.wait()
            child.kill()

    thread = threading.Thread(target=keep_a_child)
    thread.start()
    try:
        started.wait()
        (tmp_path / "x").write_bytes(bytes(3 * 2**19))
        (tmp_path / "ballast").write_bytes(bytes(2**20))
        with socket.socket(), (tmp_path / "x").open():
            now = held(os.getpid(), tmp_path)
    finally:
        is_over.set()
        thread.join()
    more = {name: now[name] - before[name] for name in now if name != "memory_mib"}
    # one of the descriptors is the child's pipe
    assert more == {
        "threads": 1,
        "descriptors": 3,
        "sockets": 1,
        "processes": 1,
        "disk_mib": 1.5,
    }
    assert before["memory_mib"] > 1


def test_of_a_class_the_ninety_fifth_of_a_hundred_is_told():
    assert _p95([float(value) for value in range(101)]) == 95
    assert _p95([3.0]) == 3 and math.isnan(_p95([]))
    row = Row(30, 28, 4, 1.0, 2.0, 3.0, None, ("Too many.",)).line().split()
    assert row == ["30", "28", "4", "1.0", "s", "2.0", "s", "3.0", "s", "–", "Too", "many."]
    assert Row(1, 1, 0, 1.0, 2.0, 3.0, 4.25, ()).line().endswith("4.2 s")


def test_of_a_class_only_those_who_are_served_count():
    served = [Visit(1.0, 0, 2.0, 3.0, ""), Visit(3.0, 2, 6.0, 7.0, "")]
    refused = [Visit(99.0, 5, 99.0, 99.0, why) for why in ("Too many.", "Full.", "Too many.")]
    row = row_of([*refused, *served], 4.0)
    assert (row.visitors, row.served, row.in_line, row.browser) == (5, 2, 1, 4.0)
    assert (row.picture_p95, row.first_step_p95, row.end_p95) == pytest.approx((2.9, 5.8, 6.8))
    assert row.refusals == ("Too many.", "Full.")


def test_each_column_of_a_load_has_its_own_number(capsys):
    names = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
    times = {
        name: {"p50": at + 1.5, "p99": at + 2.5, "left_out": at == 3}
        for at, name in enumerate(names)
    }
    point = {
        "policy": "static",
        "rate": 2.0,
        "offered": 9,
        "cut": False,
        "numbers": times
        | {"finished": 8, "requests_per_s": 1.25, "output_tok_s": 1234.0, "left_out": 0}
        | {"goodput": {"requests_per_s": 0.75}},
    }
    load._print_load(
        {
            "source": "simulated",
            "capacities": {"static": 3.456},
            "slos": {"ttft_s": 1.0},
            "points": [point],
            "burstiness": 2.0,
            "seed": 7,
            "seconds_a_point": 4.0,
        }
    )
    said = printed(capsys)
    assert said[:2] == [
        "SIMULATED: a cost model stands in for the forward pass.",
        "Simulated capacity, requests/s: static 3.46.",
    ]
    assert said[-1].startswith("Gamma arrivals, burstiness 2; seed 7; at most 4 s per point.")
    (row,) = (line for line in said if line.startswith("static 2 "))
    times_told = "1.50 s 2.50 s 2.50 s 4.50 s ≥ 4.50 s ≥ 5.50 s"
    assert row == f"static 2 9 8 1.2 1,234.0 {times_told} 0.8"


def test_a_fit_is_held_against_every_other_run_and_not_its_own():
    assert fits.said([0.1, -0.4, 0.2, -0.3, 0.05]) == {
        "pairs": 5,
        "median": 0.2,
        "nine_in_ten": 0.4,
        "worst": 0.4,
    }
    one, other = (path for path in TRACES if path.stem in ("kv-pressure", "gpt2-six"))
    assert fits.total_errors([one], ours=True) == []
    assert len(fits.total_errors([one, other], ours=True)) == 2
    assert fits.total_errors([one, other], ours=False) == []


def test_pairs_are_ranked_as_they_were_where_they_are_far_apart():
    """Predicted, measured: `a` and `b` are ranked right, `a` and `c` wrong; `b` and `c` are near;
    `d` is of other runs, `e` was predicted by another one.
    """
    of = {"a": (1.0, 1.0), "b": (2.0, 1.5), "c": (0.5, 1.6), "d": (9.0, 9.0), "e": (9.0, 9.0)}
    found = [
        Prediction(f"{'y' if n == 'd' else 'x'}: {n}", "z" if n == "e" else "w", {}, e2e)
        for n, e2e in of.items()
    ]
    assert plans.ranked(found) == (1, 2)
    blank = {"ttft_s": {"p50": 2.0, "p99": 3.0}, "itl_s": {"p50": None}}
    known = {"ttft_s": {"p50": 4.0, "p99": 2.0}, "itl_s": {"p50": 1.0}}
    e2e = {"e2e_s": {"p50": 1.0, "p99": 1.0}}
    assert plans.errors(blank | e2e, known | e2e) == {
        "ttft_s p50": -0.5,
        "ttft_s p99": 0.5,
        "itl_s p50": None,
        "e2e_s p50": 0.0,
        "e2e_s p99": 0.0,
    }


def test_a_spread_is_of_values_that_were_measured():
    seconds = [at / 1e6 for at in range(100, -1, -1)]
    assert recorder_cost._spread(seconds) == {"p50": 50.0, "p99": 99.0}


def test_a_start_is_the_median_and_its_ratio_that_of_the_rounds(capsys):
    seconds = {"here": {"x": [1.0, 2.0, 6.0]}, "beside": {"x": [2.0, 2.0, 2.0]}}
    start._print({"seconds": seconds, "load_average": 0.5})
    assert printed(capsys)[1:] == [
        "x 2.00 s 2.00 s 1.00 (0.50–3.00)",
        "Medians; the ratio is the median of those within each round. Load average at the end:"
        " 0.5.",
    ]


def test_the_way_to_wait_that_serves_is_named_beside_the_best(capsys):
    names = [condition.name for condition in threads.CONDITIONS]
    data = {
        "seconds": {"a": dict.fromkeys(names, 1.0), "b": dict.fromkeys(names, 2.0)},
        "worst": {"a": 1.0, "b": 2.0},
        "best": "a",
    }
    for serving, uses in (("a", "it"), ("b", "b")):
        threads._print(data | {"serving": serving})
        said = printed(capsys)
        assert said[2] == " ".join(["b", *["2.00 s"] * len(names), "2.00×"])
        assert said[-1].startswith("Best where it fares worst: a.")
        assert said[-1].endswith(f" uses {uses}.")


def test_transformers_is_compared_in_the_fastest_of_its_settings(monkeypatch):
    """A stand-in, on as many requests as there are lanes: eager attention is twice as fast, and
    CUDA graphs do not run.
    """
    tried: list[int] = []

    @contextmanager
    def ready(model: Any, work: Any, *_: Any, variant: Variant, limit_s: float) -> Iterator[Any]:
        tried.append(len(work))
        if variant.use_cuda_graph:
            raise InflightError("No graphs here. None at all.")
        wall = {"sdpa": 2.0, "eager": 1.0}[variant.attention or ""]
        yield lambda: SimpleNamespace(outputs={"a": [1] * 4, "b": [1] * 2}, wall_s=wall)

    monkeypatch.setattr(record_gpu, "ready", ready)
    said: list[str] = []
    work = [BaselineRequest(f"r{n}", (1, 2), 4) for n in range(3)]
    chosen = record_gpu._transformers(None, work, 2, 16, said.append).about
    assert (chosen["attention"], chosen["use_cuda_graph"]) == ("eager", False)
    assert tried == [2] * 4
    assert [line.rpartition("): ")[2] for line in said] == [
        "3 tok/s",
        "No graphs here",
        "6 tok/s",
        "No graphs here",
    ]


@pytest.mark.parametrize("name", [engine_in_tab.PRESET, engine_in_tab.STOPPED])
def test_a_tab_is_timed_on_what_the_preset_recommends(name):
    spec = check(engine_in_tab._spec(name, DEFAULT_MODEL), IN_TAB)
    assert (spec.config, spec.model) == (PRESETS[name].config, DEFAULT_MODEL)
    assert spec.workload.to_json() == PRESETS[name].workload.to_json()


def test_of_a_servers_counters_those_of_vllm_are_kept(tmp_path):
    """Not the buckets of its histograms, nor when each was made."""
    kept = ['vllm:num_requests_running{engine="0"} 2.0', "vllm:e2e_request_latency_seconds_sum 3"]
    others = [
        "# HELP vllm:num_requests_running How many",
        'vllm:e2e_request_latency_seconds_bucket{le="1"} 2',
        "vllm:e2e_request_latency_seconds_created 1e9",
        "python_info 1",
    ]
    (site := tmp_path / "site").mkdir()
    (site / "metrics").write_text("\n".join([others[0], kept[0], *others[1:], kept[1], ""]))
    with hosted(site) as host:
        server: Any = SimpleNamespace(url=host.url.rstrip("/"))
        vllm_traffic.send(server, [], tmp_path)
    assert (tmp_path / "metrics.txt").read_text().splitlines() == kept
    assert json.loads((tmp_path / "clients.json").read_text()) == []


def test_traffic_comes_as_it_is_said():
    """In six bursts, two seconds apart; every third prompt of mixed traffic begins alike."""
    bursts = [asked.after for asked in vllm_traffic.chat(12, 0)]
    assert all(2.0 * (at // 2) <= after < 2.0 * (at // 2) + 0.5 for at, after in enumerate(bursts))
    mixed = [asked.body["prompt"].split() for asked in vllm_traffic.traffic(9, 0)]
    alike = [prompt[:60] == mixed[0][:60] for prompt in mixed]
    assert alike == [at % 3 == 0 for at in range(9)]
