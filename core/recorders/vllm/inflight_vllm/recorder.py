"""Observes vLLM's scheduler and makes a record of each of its steps.

The scheduler runs in the engine core under every executor (one process, several, Ray), so one class
sees every step of a data-parallel rank. Its methods are wrapped, not changed. On the engine's
thread a step costs a few references and a list of numbers; the writer's thread turns them into
JSON. If that thread cannot keep up, whole steps are dropped and counted. From time to time a
snapshot records the whole state, from which a reader can continue. Any failure switches the
recorder off with one line in the log and never reaches the engine.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import socket
import sys
import time
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .groups import Leaving, groups_of
from .sender import Sender
from .snapshot import Snapshot
from .writer import QUEUED_RECORDS, Parts, RawWriter, Sink, log

__version__ = "0.1.0"
RAW = 1  # version of the raw format
TESTED = ("0.32.0",)  # versions of vLLM that this was tested with
SNAPSHOT_STEPS = 64  # the least steps between two snapshots, unless one is requested earlier
MOST_SNAPSHOT_TOKENS = 2**22  # a larger state is not written: this is some 25 MB


def settings() -> dict[str, Any]:
    """A recorder's settings from the environment.

    INFLIGHT_TRACE: the file, or a folder in which each start of the engine writes its own file, or
    the address of a collector. INFLIGHT_PROMPTS: `ids`, or `hashed` to leave prompts out.
    INFLIGHT_MAX_MB: the most megabytes of a file. INFLIGHT_MAX_FILES: how many files are kept.
    INFLIGHT_SNAPSHOT_STEPS: the least number of steps between two snapshots, 0 for none.
    """
    place: str | Path = os.environ.get("INFLIGHT_TRACE", ".")
    if not str(place).lower().startswith(("http://", "https://")):
        place = Path(place)
        if place.is_dir():
            place /= f"inflight-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{os.getpid()}.raw.jsonl"
    return {
        "place": place,
        "hashed": os.environ.get("INFLIGHT_PROMPTS", "ids") == "hashed",
        "max_bytes": int(float(os.environ.get("INFLIGHT_MAX_MB", "256")) * 2**20),
        "max_files": int(os.environ.get("INFLIGHT_MAX_FILES", "16")),
        "snapshot_steps": int(os.environ.get("INFLIGHT_SNAPSHOT_STEPS", str(SNAPSHOT_STEPS))),
    }


def ranked(path: Path, rank: int, ranks: int | None) -> Path:
    """The file of one data-parallel rank: `run.rank1.raw.jsonl` beside `run.rank0.raw.jsonl`.
    ranks: None if there are several, but it is unknown how many.
    """
    if ranks == 1:
        return path
    name, dot, rest = path.name.partition(".")
    return path.with_name(f"{name}.rank{rank}{dot}{rest}")


def fingerprint(value: list[int] | str) -> str:
    """A digest in place of something private, such as a prompt; equal for equal values."""
    return hashlib.blake2b(repr(value).encode(), digest_size=12).hexdigest()


class _Fields:
    """Reads attributes of another project's objects, and remembers which are missing."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def __call__(self, of: Any, path: str) -> Any:
        """The value at a dotted path; None if it is missing, or if anything on the path is None."""
        value = of
        for name in path.split("."):
            if value is None:
                return None
            try:
                value = getattr(value, name)
            except Exception:  # a property of another project may raise anything
                if path not in self.missing:
                    self.missing.append(path)
                return None
        return value


_PARTS = {
    "speculation": "speculative_config.method",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "kv_connector": "kv_transfer_config.kv_connector",
    "max_loras": "lora_config.max_loras",
    "task": "model_config.runner_type",
    "multimodal": "model_config.is_multimodal_model",
    "two_way_media": "model_config.is_mm_prefix_lm",
    "attention": "model_config.attn_type",
    "encoder_decoder": "model_config.is_encoder_decoder",
}  # facts about features of vLLM, and their places in its configuration


class _Decisions(NamedTuple):
    """The decisions of a step that must be copied at once. lengths: the tokens of each request when
    it was scheduled, before its output is added. blocks: the tables handed to the runner, which
    keeps changing them if it runs in the same process.
    """

    lengths: list[int]
    blocks: list[list[Any]]

    @classmethod
    def of(cls, output: Any, requests: dict[str, Any]) -> _Decisions:
        cached = output.scheduled_cached_reqs
        blocks = [
            [new.req_id, [list(group) for group in new.block_ids], "table"]
            for new in output.scheduled_new_reqs
        ]
        for request, ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if ids is not None:
                kind = "table" if request in cached.resumed_req_ids else "append"
                blocks.append([request, [list(group) for group in ids], kind])
        return cls([requests[r].num_tokens for r in output.num_scheduled_tokens], blocks)


class _Open(NamedTuple):
    """A step whose output has not come back yet."""

    output: Any
    step: dict[str, Any]
    decisions: _Decisions


class Recorder:
    """Turns calls of a scheduler into records; its methods run on the engine's thread."""

    def __init__(self, scheduler: Any, name: str, facts: dict[str, Any] | None = None) -> None:
        """facts: further facts for the header."""
        chosen, read = settings(), _Fields()
        of = partial(read, scheduler)
        policy = str(of("scheduler_config.policy"))
        self._by_priority = policy == "priority"
        self._scheduler, self._hashed = scheduler, chosen["hashed"]
        clock = _clock()
        self._start = clock["monotonic_ns"] / 1e9
        self._steps = 0
        self._arrived: list[dict[str, Any]] = []
        self._preempted: list[tuple[str, int]] = []
        self._open: dict[int, _Open] = {}  # by id() of the scheduler output
        self._snapshot_steps = self._snapshot_due = chosen["snapshot_steps"]
        # the snapshot before a step that has been scheduled, while earlier steps are in flight
        self._snapshot: Snapshot | None = None
        # for requests that were still there at the latest snapshot, or came after it
        self._t_arrived: dict[str, float] = {}
        # requests whose prompts are in a snapshot; used only on the writer's thread
        self._prompts_written: set[str] = set()
        version = read(sys.modules.get("vllm"), "__version__")
        index, size = (of(f"parallel_config.data_parallel_{fact}") for fact in ("index", "size"))
        rank, ranks = _place(index, size)
        groups = groups_of(scheduler, read)
        self._leaving = Leaving(scheduler, groups or [])
        blocks = of("kv_cache_config.num_blocks")
        header = {
            "kind": "header",
            "raw": RAW,
            "engine": "vllm",
            "version": version,
            "tested": version in TESTED,
            "recorder": __version__,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "clock": clock,
            "scheduler": name,
            "executor": str(of("parallel_config.distributed_executor_backend")),
            "async_scheduling": bool(of("scheduler_config.async_scheduling")),
            "rank": rank,
            "ranks": ranks,
            "model": _public(str(of("vllm_config.model_config.model"))),
            "dtype": str(of("vllm_config.model_config.dtype")).removeprefix("torch."),
            "vocab_size": _called(of("vllm_config.model_config.get_vocab_size")),
            "max_model_len": of("vllm_config.model_config.max_model_len"),
            "policy": policy,
            "priorities": self._by_priority,
            "max_num_seqs": of("scheduler_config.max_num_seqs"),
            "max_num_batched_tokens": of("scheduler_config.max_num_batched_tokens"),
            "chunked": of("scheduler_config.enable_chunked_prefill"),
            "long_prefill_token_threshold": of("scheduler_config.long_prefill_token_threshold"),
            "reserve_full_isl": of("scheduler_config.scheduler_reserve_full_isl"),
            "watermark": of("scheduler_config.watermark"),
            "prefill_schedule_interval": of("scheduler_config.prefill_schedule_interval"),
            "prefix_caching": of("cache_config.enable_prefix_caching"),
            "block_size": of("block_size"),
            "num_blocks": None if blocks is None else blocks - 1,
            "first_block": 1,  # block 0 is vLLM's null block
            "kv_groups": groups,
            "num_spec_tokens": of("num_spec_tokens"),
            **{fact: of(f"vllm_config.{path}") for fact, path in _PARTS.items()},
            "prompts": "hashed" if self._hashed else "ids",
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "instance": _instance(read, scheduler),
            "missing": read.missing,
            **(facts or {}),
        }
        place = chosen["place"]
        to: Sink
        if isinstance(place, str):
            to = Sender(place, header)
        else:
            to = Parts(ranked(place, rank, ranks), header, chosen["max_bytes"], chosen["max_files"])
        self.writer = RawWriter(to)
        if version not in TESTED:
            log.warning(
                "Inflight's recorder has not been tested with vLLM %s, only with %s.",
                version,
                ", ".join(TESTED),
            )

    def now(self) -> float:
        """Seconds since the recording began."""
        return time.monotonic() - self._start

    def arrived(self, request: Any) -> None:
        """The scheduler was given a request."""
        self._t_arrived[request.request_id] = t = self.now()
        self._arrived.append(self._asked(request, t))

    def _asked(self, request: Any, t: float | None) -> dict[str, Any]:
        """A request as JSON: its prompt, limits and arrival."""
        prompt, params = request.prompt_token_ids, request.sampling_params
        known: dict[str, Any] = {
            "request": request.request_id,
            "t": t,
            "max_tokens": request.max_tokens,
        }
        if prompt is None:  # embeddings
            known["num_prompt"] = request.num_prompt_tokens
        elif self._hashed:
            known |= {"num_prompt": len(prompt), "prompt_hash": fingerprint(prompt)}
        else:
            known["prompt"] = list(prompt)
        if params is not None:
            known |= {
                "temperature": params.temperature,
                "seed": params.seed,
                "ignore_eos": params.ignore_eos,
            }
        if getattr(request, "use_structured_output", False):
            known["structured"] = True
        if self._by_priority:  # these two decide the order of the queue
            known |= {"priority": request.priority, "arrival_time": request.arrival_time}
        return known

    def preempted(self, request: Any) -> None:
        """A request is preempted; notes how many computed tokens it loses."""
        self._preempted.append((request.request_id, request.num_computed_tokens))
        self._leaving.forget(request.request_id)

    def aborted(self, requests: list[str], status: Any) -> None:
        """Requests were ended from outside. status: vLLM's own name for the reason."""
        data = {"kind": "abort", "t": self.now(), "requests": requests, "status": str(status)}
        self.writer.put(lambda: data)

    def scheduling(self) -> tuple[float, Snapshot | None]:
        """A step is about to be scheduled. Returns the time, and the state if a snapshot is due."""
        t, writer = self.now(), self.writer
        is_due = writer.wants_snapshot or self._steps >= self._snapshot_due
        # the next step records preemptions that happened before it was scheduled
        in_between = not self._steps or self._snapshot or self._preempted
        if not is_due or not self._snapshot_steps or in_between or not writer.has_room_for_snapshot:
            return t, None
        try:
            arriving = {arrived["request"] for arrived in self._arrived}
            return t, Snapshot(self._scheduler, self._steps, t, arriving, self._open.keys())
        except Exception as error:
            # perhaps another version of vLLM, whose steps can still be recorded
            self._no_snapshots(error)
            return t, None

    def _no_snapshots(self, error: Exception) -> None:
        self._snapshot_steps, self._snapshot = 0, None
        log.warning("Inflight records no snapshots: %s: %s.", type(error).__name__, error)

    def _take_snapshot(self) -> None:
        """Queue the snapshot once it is complete, before the record of its step."""
        snapshot, writer = self._snapshot, self.writer
        if snapshot is None or snapshot.waits_for:
            return
        self._snapshot, self._snapshot_due = None, snapshot.step + self._snapshot_steps
        try:
            snapshot.finish()
        except Exception as error:
            self._no_snapshots(error)
            return
        times = {
            request.request_id: self._t_arrived.get(request.request_id)
            for request in snapshot.requests
        }
        there = self._scheduler.requests
        self._t_arrived = {r: t for r, t in self._t_arrived.items() if r in there}
        if snapshot.num_tokens <= MOST_SNAPSHOT_TOKENS:
            is_whole, writer.wants_snapshot = writer.wants_snapshot, False
            writer.put(lambda: self._snapshot_record(snapshot, times, is_whole))

    def _snapshot_record(
        self, snapshot: Snapshot, times: dict[str, float | None], is_whole: bool
    ) -> dict[str, Any]:
        """The record of a snapshot; called on the writer's thread. times: of arrival, by request.
        is_whole: whether it must be readable without any earlier record.
        """
        self._prompts_written = set() if is_whole else self._prompts_written & times.keys()
        return snapshot.record(partial(self._asked_again, times))

    def _asked_again(self, times: dict[str, float | None], request: Any) -> dict[str, Any]:
        """Like `_asked`, but without the prompt if an earlier snapshot has it."""
        known = self._asked(request, times[request.request_id])
        if request.request_id in self._prompts_written and "prompt" in known:
            known |= {"num_prompt": len(known.pop("prompt")), "told": True}
        self._prompts_written.add(request.request_id)
        return known

    def scheduled(self, began: tuple[float, Snapshot | None], output: Any) -> None:
        """A step was scheduled. began: what `scheduling` returned."""
        scheduler, (t_start, snapshot) = self._scheduler, began
        waiting, deferred = scheduler.waiting, getattr(scheduler, "deferred_waiting", ())
        # requests whose KV is being loaded come first
        holding = getattr(scheduler, "kv_holding_waiting", ())
        queue = holding or waiting
        head = queue.peek_request() if queue else None
        step: dict[str, Any] = {
            "kind": "step",
            "step": self._steps,
            "t_start": t_start,
            "t_scheduled": self.now(),
            "arrived": self._arrived,
            "preempted": self._preempted,
            "waiting": len(waiting) + len(holding),
            "head": None if head is None else head.request_id,
            "deferred": len(deferred),
            # it waits for its grammar, its adapter or its KV, not for a limit
            "skipped": head in deferred,
            "budget": scheduler.max_num_scheduled_tokens,
            "blocks_free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }
        has_news = step["arrived"] or step["preempted"]
        self._arrived, self._preempted = [], []
        decisions = _Decisions.of(output, scheduler.requests)
        for request in output.finished_req_ids:
            self._leaving.forget(request)
        if left := self._leaving.of_step(output.num_scheduled_tokens, decisions.blocks):
            step["left"] = left
        if output.total_num_scheduled_tokens:
            if len(self._open) >= QUEUED_RECORDS:
                raise RuntimeError(
                    f"{QUEUED_RECORDS} steps were scheduled whose results never came back"
                )
            self._open[id(output)] = _Open(output, step, decisions)
            if snapshot is not None:
                self._snapshot = snapshot
                self._take_snapshot()
        elif has_news:
            self.writer.put(lambda: step | _decided(output, decisions) | {"empty": True})
        else:
            # an engine that becomes idle schedules one more, empty step, which is neither
            # recorded nor numbered
            return
        self._steps += 1

    def computed(self, output: Any, results: Any, t_output: float, answers: dict[int, Any]) -> None:
        """The results of a step have arrived: write the step. t_output: when they arrived, before
        vLLM processed them. answers: what vLLM then sends to its clients.
        """
        known = self._open.pop(id(output), None)
        if known is None:
            return
        step = known.step | {"t_output": t_output, "t_end": self.now()}
        rows = list(results.req_ids)  # the runner's own list, which changes with its batch
        self.writer.put(
            lambda: step | _decided(output, known.decisions) | _results(rows, results, answers)
        )
        if self._snapshot is not None and id(output) in self._snapshot.waits_for:
            self._snapshot.back(output, results)
            self._take_snapshot()


def _place(index: int | None, size: int | None) -> tuple[int, int | None]:
    """This data-parallel rank, and the number of ranks, None if there are several but it is unknown
    how many: with a dense model vLLM configures each rank as if it were the only one, and only the
    name of the process shows that it is not.
    """
    several = (size or 1) > 1 or bool(index) or "_DP" in multiprocessing.current_process().name
    return index or 0, ((size if size and size > 1 else None) if several else 1)


def _instance(read: _Fields, scheduler: Any) -> str | None:
    """An id that all ranks of an engine share: on several machines, the first address."""
    parallel = "parallel_config"
    size, here = (
        read(scheduler, f"{parallel}.data_parallel_size{where}") for where in ("", "_local")
    )
    if size and here and size > here:
        return ":".join(
            str(read(scheduler, f"{parallel}.data_parallel_{fact}"))
            for fact in ("master_ip", "rpc_port")
        )
    instance = read(scheduler, "vllm_config.instance_id")
    return instance and str(instance).partition("_dp")[0]


def _clock() -> dict[str, Any]:
    """Time 0 of a recording on two clocks, read together: the monotonic clock, which all processes
    of a machine share until it restarts, and the wall clock. boot: identifies the machine's current
    boot, None if it cannot be read.
    """
    monotonic, wall = time.monotonic_ns(), time.time_ns()
    try:
        boot = fingerprint(
            Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        )
    except OSError:
        boot = None
    return {"monotonic_ns": monotonic, "wall_ns": wall, "boot": boot}


def _public(model: str) -> str:
    """A hub id as it is; for a local folder only the name, since the path is private."""
    return os.path.basename(os.path.normpath(model)) if os.path.isdir(model) else model


def _called(method: Any) -> Any:
    try:
        return method()
    except Exception:  # if another project's code fails, the value is unknown
        return None


def _decided(output: Any, decisions: _Decisions) -> dict[str, Any]:
    """A SchedulerOutput as JSON. vLLM's second runner lists resumed requests among the new ones."""
    cached, drafts = output.scheduled_cached_reqs, output.scheduled_spec_decode_tokens
    starts, admitted = {}, []
    for new in output.scheduled_new_reqs:
        starts[new.req_id] = new.num_computed_tokens
        admitted.append({"request": new.req_id, "cached": new.num_computed_tokens})
    for request, start in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
        starts[request] = start
        if request in cached.resumed_req_ids:
            admitted.append({"request": request, "cached": start, "resumed": True})
    scheduled = zip(output.num_scheduled_tokens.items(), decisions.lengths, strict=True)
    segments = [
        {
            "request": request,
            "start": starts[request],
            "length": length,
            "num_tokens": known,
            "draft": len(drafts.get(request, ())),
        }
        for (request, length), known in scheduled
    ]
    return {
        "segments": segments,
        "blocks": decisions.blocks,
        "admitted": admitted,
        "finished_before": sorted(output.finished_req_ids),
        "total_tokens": output.total_num_scheduled_tokens,
        "structured": output.has_structured_output_requests,
        "spec": {request: list(tokens) for request, tokens in drafts.items()},
    }


def _results(rows: list[str], results: Any, answers: dict[int, Any]) -> dict[str, Any]:
    """A ModelRunnerOutput as JSON. rows: its requests in the order of the pass."""
    tokens = results.sampled_token_ids or []
    data: dict[str, Any] = {
        "row_order": rows,
        "sampled": {
            r: [int(t) for t in ids] for r, ids in zip(rows, tokens, strict=False) if len(ids)
        },
        "finished": [
            [answer.request_id, str(answer.finish_reason)]
            for client in answers.values()
            for answer in client.outputs
            if answer.finish_reason is not None
        ],
    }
    if results.logprobs is not None:
        logprobs = results.logprobs
        lists = logprobs.tolists() if hasattr(logprobs, "tolists") else logprobs
        # one row of numbers for each request; with drafts the layout differs
        if all(len(ids) <= 1 for ids in tokens):
            data["logprobs"] = {
                r: [float(x) for x in row[:3]] for r, row in zip(rows, lists.logprobs, strict=False)
            }
    return data
