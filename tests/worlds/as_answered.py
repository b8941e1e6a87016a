"""What commands print, what a grade says of every wrong answer, what the page is given of
comparisons that ship, pictures of runs, and verdicts, as text.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

import core
from core.account.delays import SHARE_NAMES, TIME_SHARES
from core.account.metrics import DEFINITIONS
from core.cli import app
from core.config import ASSETS, POLICIES, EngineConfig
from core.measure.compare import Comparison
from core.measure.rounds import RunResult
from core.serving.http.control import ControlBody
from core.serving.http.schemas import ChatBody, CompletionBody, GenerateBody
from core.serving.limits import ServingLimits
from core.simulate.engine import SimulatedEngine
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.charts.plots import kv, lanes
from visualizer.charts.step_figure import step_figure
from visualizer.documents.catalogue import recorded_ranks, recorded_runs
from visualizer.documents.comparison import RECORDED, document, load
from visualizer.jobs.limits import HERE, IN_TAB, Spec, check
from visualizer.jobs.measured import Compare, Fork
from visualizer.jobs.planned import PlanJob, SettingJob
from visualizer.jobs.work import Run, Work
from visualizer.server.limits import SPACE
from visualizer.words import findings, verdicts
from visualizer.words.findings import WASTE
from visualizer.words.language import speaking
from visualizer.write.cases import here
from visualizer.write.exercises import checking
from visualizer.write.grade import Grade, ended
from visualizer.write.measures import MEASURES
from worlds.as_refused import LINEAR, refused
from worlds.commands import command
from worlds.digests import compact, digest, shortened
from worlds.served import Answers, told, without_place
from worlds.wrong_answers import HEAD, WRONG

PLAIN = (bool, int, float, str, tuple, type(None))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DATA = Path(__file__).parents[1] / "data"
SHOWN = ("engines-kv-pressure", "poisson-32", "scheduler-zoo", "where-padding-costs")
TRACES = ASSETS / "traces"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.97,4808,10
2023-11-16 18:17:04.03,8100,5
2023-11-16 18:17:04.05,0,5
"""
COMMANDS = (
    f"show {TRACES}/kv-pressure.jsonl --steps",
    f"show {TRACES}/chunk-7-7-6.jsonl --step 2",
    f"show {TRACES}/verses-static.jsonl --json",
    f"check {TRACES}/one-request.jsonl",
    f"import {DATA}/vllm-0.32-speculation.raw.jsonl.gz --out imported.jsonl",
    "check imported.jsonl",
    "show imported.jsonl --steps",
    "show imported.jsonl --json",
    "check imported.jsonl --json",
    f"plan {TRACES}/kv-pressure.jsonl --lanes 2 --json",
    f"import {DATA}/transformers-5.23.raw.jsonl.gz --out other.jsonl",
    f"fit {TRACES}/kv-pressure.jsonl --out cost.json",
    f"plan {TRACES}/kv-pressure.jsonl --lanes 2,4 --policy static --slo ttft=0.5 --request r2",
    "run --preset kv-pressure --simulate h100:8b --steps --out simulated.jsonl",
    "run --preset poisson-32 --simulate cost.json",
    "compare --preset equal-lengths --simulate h100:8b",
    "workload azure.csv --out work.json --simulate h100:8b",
    "run --workload work.json --simulate l4:1b",
    f"agree {DATA}/vllm-0.32.0-scheduler.jsonl.gz",
    "presets",
    "models",
    "show missing.jsonl",
    "check work.json",
    "import azure.csv",
    "plan work.json",
    "fit simulated.jsonl",
)


def answers() -> dict[str, Callable[[], str]]:
    """What makes each text, by its name."""
    made = {
        "comparisons": of_comparisons,
        "commands": of_commands,
        "grades": of_grades,
        "jobs": of_jobs,
        "library": of_library,
        "pictures": of_pictures,
        "verdicts": of_verdicts,
    }
    return {name: lambda of=of: "".join(f"{line}\n" for line in of()) for name, of in made.items()}


def of_comparisons() -> Iterator[str]:
    """Their sentences and tables, and each figure by what it shows."""
    for name in SHOWN:
        shown = document(load(RECORDED / name))
        yield f"-- {name}, runs {digest(shown.pop('runs'))}"
        yield f"in other languages {digest(shown.pop('translations'))}"
        for figure in shown.pop("figures"):
            yield shortened(compact(figure), 800)
        for part, value in shown.items():
            yield shortened(f"{part}: {compact(value)}", 3000)


def of_commands() -> Iterator[str]:
    """What each command takes, then commands on files that ship or were made by one before."""
    for name in sorted(get_command(app).commands):
        known = command(name)
        yield f"{name}: {known.help}"
        for given in known.params:
            default = f" = {given.default!r}" if isinstance(given.default, PLAIN) else ""
            yield f"    {' '.join(given.opts)}{default}: {getattr(given, 'help', '')}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "azure.csv").write_text(AZURE, encoding="utf-8")
        before = Path.cwd()
        os.chdir(folder)
        try:
            for line in COMMANDS:
                yield from printed(line)
        finally:
            os.chdir(before)


def printed(line: str) -> Iterator[str]:
    """A command, its exit code, and what it prints."""
    result = CliRunner().invoke(app, line.split(), env={"COLUMNS": "100", "TERM": "dumb"})
    yield f"$ {line.replace(str(TRACES), 'traces').replace(str(DATA), 'data')}"
    if result.exit_code:
        yield f"exit code {result.exit_code}: {result.exception}"
    said = result.output if result.exit_code else result.stdout  # progress goes to stderr
    for row in said.splitlines():
        plain = compact(json.loads(row)) if row.startswith('{"schema"') else row.rstrip()
        yield shortened(plain, 4000)


def of_grades() -> Iterator[str]:
    """What is said of every wrong answer to an exercise."""
    for name, titles in WRONG.items():
        for title, (code, _) in titles.items():
            yield f"-- {name}, {title}"
            result = ended(checking(name, here(HEAD + code), 0))
            yield ADDRESS.sub("", Grade(name, result, 0.5).said())


class Simulating(Answers):
    """A host whose engines are simulated. looks: what is heard between two steps of a turn."""

    def __init__(self, runs: Callable[[str], Trace], looks: list[dict[str, Any]]) -> None:
        super().__init__(runs)
        self.compared: Compare | None = None
        self.looks = looks

    def between(self) -> None:
        if self.compared is not None:
            self.looks.append(self.compared.so_far())

    def engine(self, spec: Spec, config: EngineConfig, leaks: bool = False) -> Any:
        return SimulatedEngine(LINEAR, config)


def of_jobs() -> Iterator[str]:
    """What a page hears of work as it goes on: a run, a fork, a plan, and two turns of a
    comparison.
    """
    ids = [[5] * 9, [6] * 3, [5] * 9, [7] * 20]
    requests = [
        {"id": f"r{n}", "prompt_token_ids": prompt, "arrival": n, "sampling": {"max_new_tokens": 6}}
        for n, prompt in enumerate(ids)
    ]
    workload = {"schema": 1, "name": "four", "arrival_unit": "step", "requests": requests}
    config = EngineConfig("continuous", 2, 8, 4, 12).to_json()
    spec = {"workload": workload, "config": config, "model": "shakespeare-bpe"}
    recorded = Trace.load(TRACES / "three-lengths.jsonl")
    host = Simulating(lambda _: recorded, looks := [])
    work: dict[str, Work] = {
        "run": Run(check(spec, IN_TAB), IN_TAB),
        "run of two steps": Run(check(spec, IN_TAB), replace(IN_TAB, steps=2)),
        "fork": Fork(spec | {"knob": "max_num_seqs", "value": 1}, IN_TAB),
        "fork of policies": Fork(spec | {"knob": "policy", "value": "static"}, IN_TAB),
        "plan": PlanJob({"run": "x", "lanes": [1, 2], "slos": {"e2e_s": 0.1}}, IN_TAB),
        "setting": SettingJob({"run": "x", "config": config | {"max_num_seqs": 1}}, IN_TAB),
    }
    for name, job in work.items():
        yield f"-- {name}"
        for delta in told(job, host):
            delta.pop("header", None)  # knows the machine and the day
            yield shortened(compact(delta), 900)
        yield job.stopped()
    for url, kept in host.kept.items():
        runs = [without_place(run) for run in kept.get("runs", ())]
        yield f"{url} {digest(kept | {'runs': runs})}"
    policies = ["static", "continuous"]
    host.compared = compared = Compare(spec | {"policies": policies, "repeats": 1}, IN_TAB)
    yield "-- comparison"
    for _ in compared.run(host):
        yield compact(compared.so_far())
        if compared.progress.get("index") == compared.progress.get("total"):
            break
    yield from map(compact, looks)
    for chosen in (["static"] * 2, [], list(POLICIES), "static", ["x"]):
        yield refused(partial(Compare, spec | {"policies": chosen}, IN_TAB))
    for knob, value in (("x", 1), ("policy", "x"), ("max_num_seqs", 2), ("max_num_seqs", 0)):
        yield refused(partial(Fork, spec | {"knob": knob, "value": value}, IN_TAB))


def of_library() -> Iterator[str]:
    """What `import inflight` offers, with every default; what words mean; limits."""
    for name in core.__all__:
        offered = getattr(core, name)
        if callable(offered) and not (isinstance(offered, type) and issubclass(offered, Exception)):
            yield f"{name} {taken_by(offered)}"
            members = vars(offered).items() if isinstance(offered, type) else ()
            for of, member in sorted(members):
                function = getattr(member, "__func__", member)
                if not of.startswith("_") and inspect.isfunction(function):
                    yield f"    {of} {taken_by(function)}"
    yield from (f"{name}: {compact(vars(policy))}" for name, policy in POLICIES.items())
    for terms in (DEFINITIONS, TIME_SHARES, SHARE_NAMES, WASTE):
        yield from (f"{term}: {meaning}" for term, meaning in terms.items())
    for name, measure in MEASURES.items():
        yield f"{name}: {measure.asks} {measure.never} {measure.says}"
    for body in (GenerateBody, CompletionBody, ChatBody, ControlBody):
        for name, field in body.model_fields.items():
            bounds = [bound for bound in map(str, field.metadata) if "0x" not in bound]
            yield f"{body.__name__}.{name}: {field.default!r} {' '.join(bounds)}"
    yield from map(str, (HERE, IN_TAB, SPACE, ServingLimits()))


def of_pictures() -> Iterator[str]:
    """Recorded runs and ranks as the page lists them, with their lanes in small; and figures of a
    whole run and of its steps.
    """
    for listed, _ in (*recorded_runs(), *recorded_ranks(trusted=True)):
        yield shortened(compact(listed), 600)
    for name in ("verses-static", "chunk-7-7-6"):
        trace = Trace.load(TRACES / f"{name}.jsonl", trusted=True)
        yield f"-- {name}"
        for view in (lanes, kv):
            yield shortened(compact(view(trace).to_json()), 600)
        for event in trace.events[:8]:
            yield shortened(compact(step_figure(trace, event.step).to_json()), 600)


def of_verdicts() -> Iterator[str]:
    """What is said of two contenders however often and by however much one was faster, and of a
    third; in both languages.
    """
    lengths = ((9, 6), (3, 9), (9, 2), (20, 4))
    asked = [
        Request(f"r{n}", prompt_token_ids=(5,) * prompt, sampling=SamplingParams(new))
        for n, (prompt, new) in enumerate(lengths)
    ]
    runs = {
        policy: RunResult.of(
            SimulatedEngine(LINEAR, EngineConfig(policy, 2, 8, 4, 12)).run(Workload(asked))
        )
        for policy in ("static", "continuous", "stall")
    }
    ratios: dict[str, Callable[[int], float]] = {
        "faster": lambda n: 0.5 + n / 100,
        "slower": lambda n: 2.0 - n / 100,
        "by a hair": lambda n: 0.9999,
        "faster by turns": lambda n: 1 + (0.1 if n % 2 else -0.1),
        "faster in one": lambda n: 0.2 if n == 0 else 1.1,
    }
    for (pattern, ratio), rounds in product(ratios.items(), (1, 2, 3, 10)):
        base = [1 + n / 10 for n in range(rounds)]
        walls = {"static": base, "continuous": [b * ratio(n) for n, b in enumerate(base)]}
        for third in (None, *([0.4, 4.0] if rounds == 3 else [])):
            every = walls if third is None else walls | {"stall": [third] * rounds}
            made = {name: runs[name] for name in every}
            numbers = {name: dict(run.metrics) for name, run in made.items()}
            found = Comparison(list(every), every, made, numbers, [])
            yield f"-- {pattern}, {rounds} rounds, third {third}"
            for language in ("en", "de"):
                with speaking(language):
                    yield verdicts.headline(found)
                    yield verdicts.total_time(found)
    for say in (
        findings.throughput,
        findings.latency,
        findings.lane_steps,
        findings.kv_use,
        findings.pressure,
        findings.outputs,
        verdicts.method,
    ):
        for language in ("en", "de"):
            with speaking(language):
                yield say(found)


def taken_by(function: Callable[..., Any]) -> str:
    """What it takes, each with its default if that is plain."""
    return ", ".join(
        f"{name}={given.default!r}" if isinstance(given.default, PLAIN) else name
        for name, given in inspect.signature(function).parameters.items()
    )
