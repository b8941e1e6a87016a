"""Everything that is said and counted of a run, as text that a person can read.

`tests/told/` holds these texts as they were when they were last written, and a test compares: a
change that was not meant shows there, and one that was meant is read in the diff of the commit,
after `python tests/measure/told.py` has written them anew. Drawings are there by a digest.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.account.perfetto import chrome_trace
from core.account.request_times import SLOs
from core.account.tables import tables
from core.cli.check import findings
from core.cli.report import print_delays, print_steps, print_summary, summary
from core.cli.terminal import mask_lines
from core.config import ASSETS, POLICIES, EngineConfig
from core.errors import InflightError
from core.proof.verify import verify
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.trace import phrases
from core.trace.divergence import divergence, knobs
from core.trace.events import LimitReached, Resumed
from core.trace.messages import english
from core.trace.run_state import RunState
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.charts.plots import kv, lanes
from visualizer.charts.step_figure import step_figure
from visualizer.documents.catalogue import LEAKS, RUNS, recorded_ranks, thumbnail
from visualizer.documents.catalogue import recorded_runs as recorded_ones
from visualizer.documents.comparison import RECORDED as COMPARISONS
from visualizer.documents.comparison import Shown, document, load
from visualizer.documents.comparison import recorded as recorded_comparisons
from visualizer.documents.live import LiveRun
from visualizer.documents.opening import opening
from visualizer.documents.replay import captions_in, ranks_document, replay
from visualizer.jobs import offers
from visualizer.jobs.limits import IN_TAB
from visualizer.lessons.document import document as lessons
from visualizer.lessons.document import lesson_document, terms
from visualizer.lessons.document import recorded as recorded_runs
from visualizer.lessons.lessons import LESSONS, QUESTIONS
from visualizer.lessons.sheets import KINDS, sheet
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import markup, style
from visualizer.page.story import story_data, story_html
from visualizer.page.tabs import TABS, WRITE, part, player_options, tab_files
from visualizer.words.findings import fork
from visualizer.words.vocabulary import plain
from worlds.as_answered import answers
from worlds.as_refused import refusals
from worlds.comparison import CURVE, ENVIRONMENT, measured
from worlds.digests import compact, digest, shortened
from worlds.served import (
    Answers,
    of_attempts,
    of_followed,
    of_jobs,
    of_models,
    of_questions,
    of_tab,
    of_teacher,
    without_place,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "told"
DATA = Path(__file__).parents[1] / "data"
COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))
READ = 40  # steps of a run whose sentences are there in words
SEEN = 14  # steps of a run that the page is asked about
PAGE, DRAWN, WALK = "page-", "drawn-", "drawn-walk-"
SCRIPTS = Path(__file__).parents[1] / "js"
ON_SCREEN = (
    "chunk-7-7-6",
    "shared-prefix",
    "simulated-continuous",
    "simulated-no-evict",
    "simulated-priority-first",
    "simulated-split",
    "verses-static",
    "vllm-0.32-hybrid",
    "vllm-0.32-sliding-window",
    "vllm-0.32-speculation",
    "vllm-http-async",
)
WALKED = (
    "gpt2-six",
    "kv-pressure",
    "long-prompt-arrives",
    "long-prompt-chunked",
    "shared-prefix",
    "three-lengths",
)
WITH_SERVER = ("editor", "follow", "live", "served")
# what a teacher sets on the walk through Live, in this order
TAUGHT: tuple[dict[str, Any], ...] = (
    {"policy": "static", "max_num_seqs": 2, "max_num_batched_tokens": 24},
    {"max_num_seqs": 300},
    {"steps_per_s": 7},
    {"steps": 1, "steps_per_s": 0},
    {"hide_texts": False},
    {"accepting": False},
)
COMPARED = ("gpt2-six", "equal-lengths")
GOALS = SLOs(ttft_s=0.05, tpot_s=0.02, e2e_s=1.0)
SHIPPED = (
    "chunk-7-7-6",
    "kv-pressure-stall",
    "long-prompt-arrives",
    "nanogpt-chunked-4-arrivals",
    "prefix-too-short",
    "shared-prefix",
    "three-lengths",
    "verses-continuous",
    "verses-dropped",
    "verses-dynamic",
    "verses-sequential",
    "verses-static",
)
RECORDED = (
    "transformers-5.23",
    "vllm-0.32-hybrid",
    "vllm-0.32-sliding-window",
    "vllm-0.32-snapshots",
    "vllm-0.32-speculation",
    "vllm-http/priority-pressure",
    "vllm-http/reset-running",
    "vllm-http/long-prefill",
    "vllm-http/async",
)


def texts() -> dict[str, Callable[[], str]]:
    """What makes each text, by its name."""
    opened: dict[str, Callable[[], Trace]] = {}
    for name in SHIPPED:
        opened[name] = partial(Trace.load, ASSETS / "traces" / f"{name}.jsonl")
    for name in RECORDED:
        opened[name.replace("/", "-")] = partial(recorded, name)
    for name in POLICIES:
        opened[f"simulated-{name}"] = partial(simulated, name)
    made: dict[str, Callable[[], str]] = {}
    for name, trace in opened.items():
        made[name] = lambda trace=trace: of_run(trace())
        if not name.startswith("vllm-http"):
            made[f"{PAGE}{name}"] = lambda trace=trace: of_page(trace(), "told.js")
        if name in ON_SCREEN:
            made[f"{DRAWN}{name}"] = lambda trace=trace: of_page(trace(), "drawn.js")
    made[f"{DRAWN}story"] = lambda: told_by("drawn_story.js", story_data("en", "."))
    made[f"{DRAWN}learn"] = lambda: told_by("drawn_learn.js", lessons(runs()))
    for path in (SCRIPTS / "deeds").iterdir():
        made[f"{WALK}{path.stem}"] = partial(walked, path.stem)
    made |= {"comparison": of_comparison, "lessons": of_lessons, "forks": of_forks}
    made |= {"live": of_live, "phrases": of_phrases}
    return made | answers() | refusals()


def recorded(name: str) -> Trace:
    """The trace of another engine's recording."""
    return to_trace(read_raw([DATA / f"{name}.raw.jsonl.gz"])[0])


def simulated(policy: str) -> Trace:
    """Nine requests of all lengths under a policy, some with a priority, one whose client leaves; a
    pool that is too small for all, and prompts that share a beginning.
    """
    shape = ((20, 6), (3, 12), (41, 5), (7, 20), (20, 3), (30, 9), (5, 15), (12, 4), (20, 8))
    requests = [
        Request(
            f"r{n}",
            prompt_token_ids=[*range(min(prompt, 16)), *[n] * max(0, prompt - 16)],
            sampling=SamplingParams(new, ignore_eos=True),
            arrival=2 * n,
            priority=(n * 5) % 3,
            leaves_after=9 if n == 6 else None,
        )
        for n, (prompt, new) in enumerate(shape)
    ]
    shares = POLICIES[policy].prefix_caching
    config = EngineConfig(policy, 3, 24, 8, 8, prefix_caching=shares)
    return SimulatedEngine(COST, config).run(Workload(requests, "of all lengths"))


def of_run(trace: Trace) -> str:
    """A run, from what `check` believes of it to every step."""
    return "\n".join(map(shortened, _of_run(trace))) + "\n"


def of_page(trace: Trace, script: str) -> str:
    """What the page makes of a run, asked by Node: what `tests/js/told.js` is told of it, or
    `tests/js/drawn.js` has on screen. Of one that is simulated here the header would know this
    machine and the date.
    """
    return told_by(script, without_place(replay(trace)))


def told_by(script: str, given: dict[str, Any]) -> str:
    """What a script of `tests/js` prints of this, its lines cut."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "given.json").write_text(json.dumps(given), encoding="utf-8")
        command = ["node", str(SCRIPTS / script), str(file), str(SEEN)]
        asked = subprocess.run(command, check=True, capture_output=True, text=True)
    return "".join(f"{shortened(line, 400)}\n" for line in asked.stdout.splitlines())


def walked(name: str) -> str:
    """What the page tells on a walk, a deed a line; some have a server, which runs nothing."""
    walk = (SCRIPTS / "deeds" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    page = the_page(name in WITH_SERVER) if name != "story" else the_story()
    if name in WITH_SERVER:
        answers = Answers(runs())
        steps = streamed(runs()("kv-pressure"))
        if name == "served":
            of_jobs(answers, LEAKS["three-lengths"], "c-equal-lengths")
        if name == "editor":
            of_models(answers)
            answers.kept["inflight/state"] = offers.for_runs(replace(IN_TAB, any_model=True))
        if name == "live":
            of_questions(answers, "kv-pressure", "r2")
            engine = SimulatedEngine(COST, EngineConfig("continuous", 6, 64, 20, 8))
            steps[0] = of_teacher(answers, engine, TAUGHT) + steps[0]
        answers.streams["inflight/live/steps"] = steps
        fetched = page["answers"] | answers.kept
        page = page | {"streams": answers.streams, "answers": fetched}
    if name == "follow":
        answers = Answers(runs())
        of_followed(answers)
        live = page["parts"]["live"]
        watching = {"live": live | {"options": live["options"] | {"asks": False}}}
        page = page | {
            "streams": answers.streams,
            "answers": page["answers"] | answers.kept,
            "parts": page["parts"] | watching,
        }
    if name == "tab":
        answers = Answers(runs())
        engine, brought = of_tab(answers)
        models = {"engine": "engine", "engineModels": ["shakespeare-bpe", "smollm2"]}
        offered = offers.for_runs(replace(IN_TAB, offered=tuple(models["engineModels"])))
        page = page | {
            "engine": engine,
            "brought": brought,
            "options": page["options"] | models | {"offers": "offers"},
            "answers": page["answers"] | answers.kept | {"offers": {"inflight/state": offered}},
        }
    if name == "write":
        manifest = {"engine/manifest.json": {"files": {}, "models": {}}}
        page = page | {"engine": of_attempts(COST), "answers": page["answers"] | manifest}
    return told_by("drawn_page.js", page | {"walk": walk})


@cache
def the_page(has_server: bool) -> dict[str, Any]:
    """The page with its markup, options and parts, and what it fetches: a site's, or a server's."""
    fetched: dict[str, Any] = {"opening": opening(), "plotly": ""}
    catalogue = []
    for listed, path in recorded_ones():
        if listed["name"] in WALKED:
            fetched[path.stem] = replay(Trace.load(path))
            catalogue.append(listed | {"url": path.stem})
            if path.stem in LEAKS:
                catalogue[-1]["leak"] = LEAKS[path.stem]
                leaking = Trace.load(path.with_name("leaks") / path.name)
                fetched[LEAKS[path.stem]] = replay(leaking)
    for listed, ranks in recorded_ranks():
        fetched[listed["name"]] = ranks_document(ranks)
        catalogue.append(listed | {"url": listed["name"]})
    compared = [listed | {"url": f"c-{listed['name']}"} for listed in recorded_comparisons()]
    compared = [listed for listed in compared if listed["name"] in COMPARED]
    for listed in compared:
        fetched[listed["url"]] = document(load(COMPARISONS / listed["name"]))
    documents = {language: f"learn-{language}" for language in LANGUAGES}
    for language, url in documents.items():
        fetched[url] = lessons(runs(), language)
    captions = {
        listed["name"]: {"de": f"de-{listed['name']}"}
        for listed in catalogue
        if listed["name"] in RUNS
    }
    for name, urls in captions.items():
        fetched[urls["de"]] = captions_in(runs()(name), "de")
    given: dict[str, Any] = {
        "compare": {"server": has_server, "plotly": "plotly", "comparisons": compared},
        "learn": {"server": False, "documents": documents, "captions": captions},
    }
    if has_server:
        fetched["inflight/call/lessons"] = {"url": documents["de"]}
        fetched["inflight/state"] = offers.for_runs(IN_TAB)
        fetched["inflight/comparisons"] = offers.for_comparisons(IN_TAB) | {
            "recorded": compared,
            "note": "",
        }
        policies = [{"name": policy.name, "shows": policy.shows} for policy in POLICIES.values()]
        given["live"] = {"base": "", "policies": policies, "prompts": ["ROMEO:", "KING:"]}
    else:
        given["write"] = {"engine": "engine", "codemirror": "codemirror"}
    tabs = [*TABS, {"name": "live", "title": "Live"}, WRITE]
    options = player_options(catalogue, tabs) | {
        "comparisons": [{k: e[k] for k in ("name", "url")} for e in compared],
        "opening": {"url": "opening"},
        "server": has_server,
    }
    return {
        "markup": markup(),
        "options": options,
        "parts": {name: part(name, "", {"tabs": tabs, **more}) for name, more in given.items()},
        "files": {name: tab_files(name) | {"style": ""} for name in given},
        "styles": [style(), *(tab_files(name)["style"] for name in given)],
        "answers": fetched,
        "streams": {},
        "engine": {},
        "brought": {},
    }


def the_story() -> dict[str, Any]:
    """The story as it is in its page, without the scripts."""
    head, _, rest = story_html().partition('<body class="story">')
    styles = re.findall("<style>(.*?)</style>", head, re.DOTALL)
    body = rest.rpartition("<script>")[0]
    return {"markup": body, "styles": styles, "answers": {}, "streams": {}, "engine": {}}


def streamed(trace: Trace) -> list[str]:
    """A run as the Live tab gets it, step by step, over connections that break off."""
    run, messages = LiveRun(trace.header, trace.tokenizer), []
    messages.append(run.beginning())
    for event in trace.events:
        for arrived in event.arrived:
            request = arrived.request
            asked = trace.asked[request].request.sampling.max_new_tokens
            run.meet(request, trace.prompts[request], asked, f"by {request}", request == "r2")
        messages.append(run.delta([event]))
    told = [f"id: {n}\ndata: {json.dumps([message])}\n\n" for n, message in enumerate(messages)]
    return ["".join(told[:20]), *("".join(told[n : n + 3]) for n in range(20, len(told), 3))]


def _of_run(trace: Trace) -> Iterator[str]:
    if not trace.header.is_simulated:  # which would know this machine and the date
        yield compact(trace.header.to_json() | {"workload": trace.header.workload})
    yield from findings(verify(trace.lines()))
    yield printed(print_summary, trace, GOALS)
    yield printed(print_steps, trace)
    yield printed(print_delays, trace)
    yield from (shortened(compact(one.request.to_json()), 300) for one in trace.asked.values())
    told = summary(trace, GOALS)
    yield from (f"{name}: {compact(value)}" for name, value in told["metrics"].items())
    yield from (compact(request) for request in told["requests"][:12])
    yield f"all of them {digest(told['requests'])}"
    yield compact(told["delays"])
    as_tables = [table.to_csv(float_format="%.6g") for table in tables(trace)]
    yield f"as tables {digest(as_tables)}, for Perfetto {digest(chrome_trace(trace))}"
    yield f"lanes {digest(lanes(trace).to_json())}, KV {digest(kv(trace).to_json())}"
    yield f"in the list of runs {digest(thumbnail(trace))}"
    shown = replay(trace)
    letters, state = (
        shown["letters"],
        RunState.of(trace.prompt_lengths, trace.header.policy.requeue),
    )
    yield compact(shown["totals"])
    yield compact(shown["delays"])

    def say(spans: Any) -> str:
        return spans if isinstance(spans, str) else plain(spans, lambda r: letters.get(r, "?"))

    for number, (event, caption) in enumerate(zip(trace.events, shown["captions"], strict=True)):
        state.begin(event)
        frame = digest(state.frame(event))
        state.end(event)
        said = [f"    {say(caption[name])}" for name in ("say", "simple", "waits", "bound")]
        said += [f"    - {say(reason)}" for reason in caption["why"]]
        in_digest = "" if number < READ else f", said {digest(said)}"
        yield f"step {event.step}, frame {frame}{in_digest}"
        yield from () if in_digest else said
    widest = max(trace.events, key=lambda event: sum(p.tokens for p in event.passes))
    for step in sorted({widest.step, trace.events[len(trace.events) // 2].step}):
        yield from mask_of(trace, step)


def mask_of(trace: Trace, step: int) -> Iterator[str]:
    """The mask of a step in letters, and its figure by a digest; a figure may be too large."""
    for order in ("request", "cached-new"):
        yield from (line.plain for line in mask_lines(trace, step, 0, order))
    try:
        yield f"figure of step {step}: {digest(step_figure(trace, step).to_json())}"
    except InflightError as error:
        yield str(error)


def of_comparison() -> str:
    """A comparison of two policies on a clock of its own, as the page is given it."""
    shown = document(
        Shown(measured(), "by hand", ENVIRONMENT, title="By hand", cost=CURVE, created="2026")
    )
    del shown["runs"]  # they know the machine, and the date
    lines = [f"{name}: {compact(value)}" for name, value in shown.items()]
    return "\n".join(lines) + "\n"


def of_lessons() -> str:
    """Every lesson with the facts of its runs, and the sheets that are printed of it."""
    traces = runs()
    lines = []
    for lesson in (*LESSONS, QUESTIONS):
        told = lesson_document(lesson, traces, "en")
        lines += [f"{lesson.name}: {told['title']} {told['question']}"]
        lines += [f"    {compact(stop)}" for stop in told["stops"]]
        lines += [f"    in German {digest(lesson_document(lesson, traces, 'de'))}"]
        if lesson is not QUESTIONS:
            sheets = [digest(sheet(lesson.name, kind, traces)) for kind in KINDS]
            lines += [f"    sheets {', '.join(sheets)}"]
    lines += [f"{term}: {compact(seen)}" for term, seen in terms(traces, "en").items()]
    return "\n".join(lines) + "\n"


def of_live() -> str:
    """What the Live tab is sent of a run in which memory runs out, message by message."""
    messages = "".join(streamed(runs()("kv-pressure"))).split("\n\n")
    return "".join(f"{shortened(message, 900)}\n" for message in messages)


def of_forks() -> str:
    """Where runs of the same requests under other settings part."""
    traces = runs()
    pairs = [
        ("kv-pressure", "kv-pressure-stall"),
        ("verses-static", "verses-dropped"),
        ("verses-static", "verses-continuous"),
        ("verses-dynamic", "verses-sequential"),
        ("decode-first", "prefill-first"),
        ("long-prompt-arrives", "long-prompt-chunked"),
        ("kv-pressure", "kv-pressure"),
    ]
    lines = []
    for one, other in pairs:
        before, after = traces(one), traces(other)
        found = divergence(before, after)
        lines += [f"{one} and {other}: {compact(found and found.to_json())}"]
        lines += [compact([vars(knob) for knob in knobs(before, after)])]
        lines += [compact(fork(found, (len(before.events), len(after.events))))]
    return "\n".join(lines) + "\n"


def of_phrases() -> str:
    """What each limit is called and gives as a reason, at numbers that differ and at one; and what
    settings, gaps and the letters of requests are called.
    """
    reasons = [
        LimitReached(limit, have, need, total)
        for limit in phrases.LIMITS
        for have, need, total in ((0, 2000, 3000), (2, 3, 5), (1, 1, 1), (0, 1, 2))
    ]
    said = {
        f"{' '.join(map(str, why))}{', reserved' if reserved else ''}": (
            f"{phrases.reason(why, reserved)}; {phrases.brief(why, reserved)}"
        )
        for why in reasons
        for reserved in (False, True)
        if not reserved or why.limit == "blocks"
    }
    said |= {f"bound by {limit}": phrases.bound(limit) for limit in phrases.LIMITS}
    causes = (*phrases.LIMITS, "overtaken", "passed")
    said |= {f"queued by {cause}": phrases.queued_by(cause) for cause in causes}
    said |= {
        f"{name} {value}": phrases.setting(name, value)
        for name, own in EngineConfig().to_json().items()
        for value in ((False, True) if isinstance(own, bool) else (own, 1, 2))
    }
    said |= {
        f"{first} to {last}, {missing} missing": phrases.not_shown(
            Resumed(first, last, missing, (), (), (), ())
        )
        for first, last, missing in ((7, 7, 1), (7, 8, 2), (7, 9, 3), (7, 8, 1), (7, 2009, 2000))
    }
    said |= {f"letter {n}": phrases.letter(n) for n in (0, 25, 26, 51, 52, 701, 702)}
    return "".join(f"{what}: {english(words)}\n" for what, words in said.items())


runs = cache(recorded_runs)


def printed(what: Callable[..., object], *given: Any) -> str:
    """What a function prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        what(*given)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
