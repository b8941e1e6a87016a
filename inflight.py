"""Inflight: continuous batching on a real engine, every step on record.

Run requests, and keep what happened:

    from inflight import Engine, EngineConfig, Request, SamplingParams, Workload

    limits = EngineConfig(policy="continuous", max_num_seqs=3)
    engine = Engine.from_pretrained("shakespeare-bpe", limits)
    sampling = SamplingParams(max_new_tokens=20)
    trace = engine.run(Workload([Request("a", prompt="O Romeo, ", sampling=sampling)]))

Or step by step, with your own code in between:

    for event in engine.stream(workload):
        print(event.step, event.running, event.waiting.count)

Read it:

    len(trace), trace[-1]     how many steps; the last of them; `for event in trace[10:20]`
    trace.text("a")           the answer to a request
    trace.event(3)            step 3: who arrived, joined, waited and why; passes, tokens, blocks
    trace.mask(step=3)        who could attend to whom
    metrics(trace)            TTFT, ITL, throughput, padding, occupancy
    delays(trace)             where each request's time went
    inflight.tables(trace)    steps, requests and segments as tables
    trace.diff(other)         the first decision in which another run parts from it, and why
    compare(trace, other)     their times, in all and by request

See it. In a notebook, a trace or a comparison as the last expression of a cell is the player, on
that run:

    trace.show(step=3)
    trace.show(step=3).save("run.html")
    compare_policies(engine, preset("gpt2-six").workload)
    trace.plot(), comparison.plot()     figures of Plotly: lanes, "kv", "mask"; the race
    trace.animate("run.gif")            the lanes as they fill, for a slide

Or without a model, on a cost by data sheet or fitted to a run; nothing is measured then, and
everything says so:

    SimulatedEngine(Roofline.named("h100", "8b"), EngineConfig(max_num_seqs=64)).run(workload)

Keep it:

    trace.save("run.jsonl")
    Trace.load("run.jsonl")   checks checksums, shape and rules
    check("run.jsonl")        takes every decision in it again, and decodes its texts; it says what
                              was proved, and what is taken on trust
    import_recording(file)    the trace of what a recorder wrote in vLLM or transformers

`dir(inflight)` lists all there is, and `help(inflight.Trace)` prints what one of it can do. Every
refusal is an `InflightError` with one sentence. What needs torch loads it when it is first
asked for, so `from inflight import *` takes nothing: name what you want. `python -m inflight` is
the command line.
"""

import typing as _typing  # `from inflight import *` takes no name that is not ours

from core import __dir__  # noqa: F401
from core import __version__ as __version__
from visualizer import draw as _draw  # noqa: F401  with it, what ran has a page

if _typing.TYPE_CHECKING:
    from core import *  # noqa: F403
else:
    from core import __getattr__  # noqa: F401  a name is imported when it is first asked for


def _start() -> None:
    """The program `inflight`, in a process that does nothing else."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C while the rest is imported needs no traceback; `main` listens again
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from visualizer.__main__ import start

    start()


if __name__ == "__main__":
    _start()
