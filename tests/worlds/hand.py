"""What the scheduler decides in each setting of the figure that a hand can change, on the settings
of two recorded runs: for `tests/measure/record.py`, and to hold against what ships.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.phrases import letters
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.charts.theme import deal
from visualizer.documents.catalogue import TRACES
from visualizer.documents.hand import HAND

RUNS = {"static": "brief-static", "continuous": "brief-continuous"}
LENGTHS, LANES, ARRIVALS = range(2, 33, 2), range(1, 5), range(0, 21, 2)
"""Of the answer of B, of the batch, and of D."""
_LONGER, _LATER = 1, 3  # B and D


def hand() -> dict[str, Any]:
    """See `visualizer.documents.hand.shipped`."""
    runs = {policy: Trace.load(TRACES / f"{run}.jsonl") for policy, run in RUNS.items()}
    one = runs["continuous"]
    recorded = len(list(one.outputs.values())[_LONGER]), one.header.config.max_num_seqs, 0
    return {
        "letters": "".join(letters(one).values()),
        "hues": list(deal(one).values()),
        **{
            name: [values[0], values[-1], values.step, now]
            for name, values, now in zip(
                ("length", "lanes", "arrival"), (LENGTHS, LANES, ARRIVALS), recorded, strict=True
            )
        },
        "decided": {
            policy: [
                list(decided(run, length, lanes, arrival))
                for length, lanes, arrival in product(LENGTHS, LANES, ARRIVALS)
            ]
            for policy, run in runs.items()
        },
    }


def decided(run: Trace, length: int, lanes: int, arrival: int) -> Iterator[int]:
    """One setting of `hand`: the requests of a recorded run under its settings but for these."""
    requests = [
        Request(
            id=name,
            prompt_token_ids=run.asked[name].prompt,
            arrival=arrival if n == _LATER else 0,
            sampling=SamplingParams(max_new_tokens=length if n == _LONGER else len(written)),
        )
        for n, (name, written) in enumerate(run.outputs.items())
    ]
    engine = SimulatedEngine(
        cost_named("h100:124m"),  # what a pass takes decides nothing
        replace(run.header.config, max_num_seqs=lanes),
        vocab_size=run.header.model.vocab_size,
    )
    events = engine.run(Workload(requests, arrival_unit="step")).events
    for one in requests:
        held = [(e.step, s.lane) for e in events for s in e.segments if s.request == one.id]
        rows = [
            e.step for e in events for p in e.passes for r in p.finished_rows if r.request == one.id
        ]
        last = held[-1][0]
        yield from (held[0][1], held[0][0], last, max(rows, default=last))


def write() -> None:
    """Decide it anew."""
    HAND.write_text(json.dumps(hand(), separators=(",", ":")) + "\n", encoding="utf-8")
