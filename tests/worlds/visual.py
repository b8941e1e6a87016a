"""A small world for tests of the page: the real scheduler with a runner that invents tokens, recorded as a trace."""

from __future__ import annotations

from core.config import EngineConfig
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.events import KV, Pass, Sampled, Segment, StepEvent, Timings
from core.trace.trace import Texts, Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload


def request(name: str, prompt: int, new: int, arrival: int = 0, first: int = 0) -> Request:
    """A request with `prompt` made-up tokens that writes `new` tokens; equal `first` gives equal prompts."""
    ids = tuple(first + i for i in range(prompt))
    return Request(name, prompt_token_ids=ids, sampling=SamplingParams(max_new_tokens=new, ignore_eos=True), arrival=arrival)


def record(config: EngineConfig, *requests: Request, num_blocks: int | None = None) -> Trace:
    """Run the requests (in order of arrival) to their end; every token is number 7 and every step takes 10 ms."""
    blocks = num_blocks or config.num_blocks or 64
    scheduler = Scheduler(config, blocks)
    states = [RequestState(r, r.prompt_token_ids or (), i) for i, r in enumerate(requests)]
    events, step = [], 0
    while states or scheduler.has_work:
        now = [s for s in states if s.request.arrival <= step]
        states = [s for s in states if s.request.arrival > step]
        for state in now:
            scheduler.add(state)
        passes, segments, sampled = [], [], []
        for index, output in enumerate(scheduler.schedule()):
            over = tuple((s.request, s.lane) for s in output.scheduled if not s.tokens)
            t = step / 100 + index / 1000
            passes.append(
                Pass(output.layout, output.rows, output.width, output.num_scheduled_tokens, output.padding, t, t + 0.001, over)
            )
            segments += [
                Segment(index, s.request, s.lane, s.phase, s.start, len(s.tokens), s.kv_len) for s in output.scheduled if s.tokens
            ]
            new = [s.request for s in output.scheduled if s.samples]
            sampled += [Sampled(index, r, 7, -1.0, 0.5) for r in new]
            scheduler.update_from_output(output, [7] * len(new))
        facts = scheduler.end_step()
        if passes:
            limit = config.max_num_batched_tokens if config.batching.token_budget else None
            data = StepEvent(
                step, step / 100, step / 100 + 0.009, Timings(0.001, 0.001, 0.006, 0.001),
                tuple((s.id, step / 100) for s in now), tuple(facts.admitted), facts.waiting, tuple(facts.preempted), tuple(facts.stalled),
                tuple(passes), tuple(segments), tuple(sampled), tuple(facts.finished),
                KV(facts.blocks_used, blocks, tuple(facts.block_changes), tuple(facts.prefix_hits)), facts.budget(limit),
            )  # fmt: skip
            events.append(StepEvent.from_json(data.to_json()))
        step += 1
        assert step < 10_000, "the run does not end"
    prompts = {r.id: list(r.prompt_token_ids or ()) for r in requests}
    header = {
        "model": {"name": "invented", "windows": [None]},
        "policy": config.policy,
        "config": config.to_json(),
        "workload": Workload(requests).to_json(),
        "prompts": prompts,
        "num_blocks": blocks,
        "device": "none",
    }
    trace = Trace(header, events)
    trace.recorded_texts = Texts(
        {r: [f"p{i} " for i in ids] for r, ids in prompts.items()},
        {r: [f"w{i} " for i in range(len(o))] for r, o in trace.outputs.items()},
    )
    return trace
