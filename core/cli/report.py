"""A trace as tables: requests, totals, and steps; and a sentence on where it was measured."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from rich.text import Text

from core.account.delays import NAMES, QUEUED, SHARE_NAMES, SLOW, Delay, Gap, delays
from core.account.metrics import metrics
from core.account.request_times import SLOs, request_times
from core.cli.output import number, percent, percentile, print_line, seconds, table, unbroken
from core.simulate.fitted import USELESS
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import english
from core.trace.phrases import letters, not_shown, queued_by, reason
from core.trace.trace import Trace

MOST_ROWS = 40


def summary(trace: Trace, slos: SLOs | None = None) -> dict[str, Any]:
    """The run as plain data: header, metrics, and every request with its text, if it has one."""
    requests = [
        {**life.to_json(), "text": trace.text(name)} for name, life in request_times(trace).items()
    ]
    return {
        "header": {**trace.about(), "prompts": trace.prompts},
        "complete": trace.complete,
        "metrics": metrics(trace, slos),
        "requests": requests,
        "delays": delays(trace).to_json(),
    }


def print_summary(trace: Trace, slos: SLOs | None = None) -> None:
    """Print what ran, a table of the requests, and the totals."""
    print_line(headline(trace))
    print_line()
    names, lives = letters(trace), list(request_times(trace).values())
    columns = (
        "request",
        "prompt",
        "new",
        "first step",
        "finish step",
        "reason",
        "TTFT",
        "E2E",
        "text",
    )
    writes = not trace.header.is_simulated
    rows = [
        (
            f"{names[life.request]} {life.request}",
            str(life.num_prompt_tokens),
            str(life.num_tokens),
            _step(life.first_step),
            _step(life.finish_step),
            (
                "from outside"
                if life.finish_reason == "cancelled" and trace.header.engine
                else life.finish_reason or "unfinished"
            ),
            seconds(life.ttft_s),
            seconds(life.e2e_s),
            one_line(trace.text(life.request)) if writes else "simulated: no text",
        )
        for life in lives[:MOST_ROWS]
    ]
    table(
        columns,
        rows,
        stretch=("text",),
        right=("prompt", "new", "first step", "finish step", "TTFT", "E2E"),
    )
    if len(lives) > MOST_ROWS:
        print_line(f"… and {len(lives) - MOST_ROWS} more; --json has them all.")
    print_line()
    for text in totals(metrics(trace, slos), trace.header.is_asynchronous):
        print_line(text)
    for text in circumstances(trace.header):
        print_line(text)
    print_worst(trace)
    if odd := [event.step for event in trace.events if event.warnings]:
        print_line(
            english(
                f"{len(odd):,} [step has|steps have] warnings, first step {odd[0]}; `check` lists"
                " them."
            )
        )
    if not trace.complete:
        print_line("This run was cut short.")


def print_delays(trace: Trace) -> None:
    """Print where each request's time went, with a row for each; the parts add up to the whole."""
    names = letters(trace)
    rows = [
        (
            f"{names[d.request]} {d.request}",
            *(seconds(us / 1e6) if us else "–" for us in (d.whole_us, *d.us)),
        )
        for d in delays(trace).requests
    ]
    columns = ("request", "whole", *SHARE_NAMES.values())
    table(columns, rows, right=columns[1:])
    print_line()


def print_worst(trace: Trace) -> None:
    """Print the longest gaps between tokens and the longest waits, with their recorded causes."""
    names, found = letters(trace), delays(trace)
    if found.gaps:
        print_line()
        rows = [
            (
                seconds(g.whole_us / 1e6),
                str(g.step),
                " ".join(names[r] for r in (g.request, *g.beside)),
                _gap(g, names),
            )
            for g in found.gaps
        ]
        columns = ("longest gaps", "step", "before tokens of", "most of it")
        table(columns, rows, stretch=columns[2:], right=("step",))
    if found.waits:
        print_line()
        rows = [
            (seconds(d.us[QUEUED] / 1e6), _step(d.first_step), names[d.request], _wait(d))
            for d in found.waits
        ]
        table(("longest waits", "step", "of", "why"), rows, stretch=("why",), right=("step",))


def _gap(gap: Gap, names: Mapping[str, str]) -> str:
    part = gap.cause or "decode"
    text = f"{SHARE_NAMES[part]} {percent(gap.us[NAMES.index(part)] / gap.whole_us)}"
    if part == "others" or gap.uncompared:
        prompts = ", ".join(f"{names[r]} {tokens:,}" for r, tokens in gap.prompts)
        text += f" ({prompts} prefill tokens)"
    if part in ("preempted", "again"):
        text += english(f", {gap.again:,} [token|tokens] computed again")
    if part == "stalled" and gap.why is not None:
        text += f": {english(reason(gap.why))}"
    if part in ("others", "decode") and gap.times is not None and gap.times >= SLOW:
        text += f", {gap.times:.1f} times as long as others of its size"
    return text


def _wait(delay: Delay) -> str:
    by = sorted(delay.queued_us.items(), key=lambda one: -one[1])
    late = f"; overtaken by {len(delay.overtaken_by)}" if delay.overtaken_by else ""
    return ", ".join(f"{queued_by(cause)} {seconds(us / 1e6)}" for cause, us in by) + late


def headline(trace: Trace) -> Text:
    """Workload, policy and limits, model, device."""
    header, config, model = trace.header, trace.config, trace.header.model
    lanes = english(f"{config.num_lanes} [lane|lanes]")
    budget = f", budget {config.max_num_batched_tokens}" if config.policy.token_budget else ""
    size = f" ({_parameters(model.parameters)} parameters)" if model.parameters else ""
    threads = ""
    if header.device == "cpu" and header.threads:
        threads = english(f", {header.threads:,} [thread|threads]")
    device = "device not recorded" if header.device == "not recorded" else header.device
    rest = (
        f" · {config.policy.name}, {lanes}{budget} · {model.name}{size} · {device},"
        f" {header.dtype}{threads}"
    )
    return Text(unbroken(header.workload), style="bold").append(unbroken(rest), style="not bold")


def _parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 999.95e6 else f"{count / 1e6:.1f} M"


def circumstances(header: Header) -> list[str]:
    """How passes were computed and in how much memory, if recorded; then whatever is unusual."""
    lines = []
    if execution := header.execution:
        words = (
            ("cuda_graphs", "CUDA graphs"),
            ("asynchronous", "asynchronous"),
            ("fused_sampling", "fused sampling"),
            ("fused_norms", "fused norms"),
            ("fused_rotary", "fused rotary embedding"),
        )
        lines.append(
            f"executed with {execution.attention} attention"
            + "".join(f", {w}" for name, w in words if getattr(execution, name))
        )
    if memory := header.memory:
        sizes = ", ".join(
            f"{name.replace('_', ' ')} {size / 2**30:.2f} GiB" for name, size in memory.items()
        )
        lines.append(f"memory: {sizes}")
    return lines + cost_sentences(header.cost) + list(header.notes)


def measured_on(environment: Mapping[str, Any]) -> str:
    """`core.measure.compare.environment` as a sentence."""
    versions = ", ".join(
        f"{name} {version}"
        for name, version in environment["versions"].items()
        if version is not None
    )
    threads = (
        english(f", {environment['threads']} [thread|threads]") if environment["threads"] else ""
    )
    return (
        f"Measured on {environment['hardware']} ({environment['device']},"
        f" {english(str(environment['cpus']) + ' [CPU|CPUs]')}{threads}, load"
        f" {environment['load_average']}), {environment['dtype']}, {environment['model']['name']};"
        f" {versions}."
    )


def cost_sentences(cost: Mapping[str, Any] | None) -> list[str]:
    """Sentences to be read beside the numbers of a simulation: the assumptions of its cost model,
    and the error of a fitted one on passes that it had not seen.
    """
    cost = cost or {}
    sentences = [str(text) for text in cost.get("assumptions", ())]
    error = cost.get("error")
    parts = ("median", "p90", "total", "worst", "held_out_passes")
    if isinstance(error, Mapping) and all(type(error.get(part)) in (int, float) for part in parts):
        middle, most, total, worst, passes = (error[part] for part in parts)
        sentences.append(
            f"The fit is off by {percent(middle)} (median) and {percent(most)} (90th percentile) on"
            f" {passes:,} passes that it had not seen, each fifth of the run in turn; by"
            f" {percent(total)} in total, and {percent(worst)} in the worst fifth."
        )
        if middle > USELESS:
            sentences.append(
                "That is no prediction of a pass: what depends on single passes, as ITL, or TTFT"
                " without a queue, is not to be believed."
            )
    return sentences


def totals(numbers: dict[str, Any], asynchronous: bool = False) -> list[str]:
    """The metrics in a few lines. asynchronous: whether host and device times overlap."""
    lanes = numbers["lane_steps"]
    positions = numbers["positions"]
    kv = numbers["kv_blocks"]
    parts = numbers["time_s"]
    wall = numbers["wall_s"]
    lines = [
        (
            f"{number(numbers['steps'])} [step|steps], {number(numbers['output_tokens'])}"
            f" [token|tokens] in {seconds(wall)}: {number(numbers['output_tok_s'])} output tok/s,"
            f" {number(numbers['total_tok_s'])} with prompts"
        ),
        (
            f"latency (p50 / p99): TTFT {_pair(numbers['ttft_s'])}, ITL {_pair(numbers['itl_s'])},"
            f" E2E {_pair(numbers['e2e_s'])}"
        ),
        (
            f"padding waste {percent(numbers['padding_waste'])} ({number(positions['padding'])} of"
            f" {number(positions['computed'])} [position|positions]), lane occupancy"
            f" {percent(numbers['lane_occupancy'])} ({number(lanes['useful'])} of"
            f" {number(lanes['total'])} [lane-step|lane-steps])"
        ),
        (
            f"budget use {percent(numbers['budget_use'])}, "
            if numbers["budget_use"] is not None
            else ""
        )
        + f"KV use {percent(numbers['kv_use'])} (at most {number(kv['peak'])} of"
        f" {number(kv['total'])} [block|blocks]), {number(numbers['preemptions'])}"
        f" [preemption|preemptions], {number(numbers['tokens_recomputed'])} [token|tokens]"
        " recomputed"
        + (f", {number(numbers['cached_tokens'])} cached" if numbers["cached_tokens"] else ""),
        _time(parts, wall, asynchronous) if wall else "time: none",
    ]
    return [*map(english, lines), *goodput_lines(numbers)]


def goodput_lines(numbers: Mapping[str, Any]) -> list[str]:
    """A line with the goodput, if it is among these numbers."""
    if (good := numbers.get("goodput")) is None:
        return []
    slos = ", ".join(
        f"{name.removesuffix('_s').upper()} ≤ {limit:g} s"
        for name, limit in good["slos"].items()
        if limit is not None
    )
    return [
        f"goodput {number(good['requests_per_s'], 2)} requests/s: {good['met']:,} met {slos}"
        f" ({percent(good['share'])})"
    ]


def _time(parts: Mapping[str, float | None], wall: float, asynchronous: bool) -> str:
    shares = {
        name: f"{name} {'not recorded' if value is None else percent(value / wall)}"
        for name, value in parts.items()
    }
    if not asynchronous:
        return "time: " + ", ".join(shares.values())
    device = (
        f"device: {shares['forward']}, {shares['sample']}, waiting for the host"
        f" {percent((parts['between'] or 0.0) / wall)}"
    )
    return f"{device}; host beside it: {shares['schedule']}, {shares['prepare']}"


def print_steps(trace: Trace) -> None:
    """Print one line per step: which request computed how much in which lane, and what changed."""
    names = letters(trace)
    num_lanes = trace.config.num_lanes
    holders: dict[str, int] = {}
    rows = [step_row(event, num_lanes, names, holders) for event in trace.events]
    table(STEP_COLUMNS, rows, right=STEP_COLUMNS[:5])
    print_line()


STEP_COLUMNS = ("step", "tokens", "pads", "blocks", "waiting", "lanes", "what changed")


def step_row(
    event: StepEvent, num_lanes: int, names: Mapping[str, str], holders: dict[str, int]
) -> tuple[str, ...]:
    """The cells of `STEP_COLUMNS` for a step. names: letters by request. holders: lanes by request
    before the step, updated here.
    """
    if event.resumed is not None:
        holders.clear()
        holders |= {c.request: c.lane for c in event.resumed.running if c.lane is not None}
    for preempted in event.preempted:
        holders.pop(preempted.request, None)
    holders |= {admitted.request: admitted.lane for admitted in event.admitted}
    tokens, pads = sum(p.tokens for p in event.passes), sum(p.padding for p in event.passes)
    numbers = (event.step, tokens, pads, f"{event.kv.used}/{event.kv.total}", event.waiting.count)
    row = (*map(str, numbers), _lanes(event, num_lanes, names, holders), _changes(event, names))
    for left in event.released:
        holders.pop(left.request, None)
    return row


def one_line(text: str) -> str:
    """Text without line ends or control characters."""
    return "".join(c if c.isprintable() else "↵" if c == "\n" else " " for c in text)


def _lanes(
    event: StepEvent, num_lanes: int, names: Mapping[str, str], holders: dict[str, int]
) -> str:
    """`A5 B ~C (D) ·`: 5 tokens of A, a decode of B, C's finished row, D stalled, an empty lane."""
    cells = {holders[stalled.request]: f"({names[stalled.request]})" for stalled in event.stalled}
    for forward in event.passes:
        cells |= {row.lane: "~" + names[row.request] for row in forward.finished_rows}
    lengths: dict[int, int] = {}
    for segment in event.segments:
        lengths[segment.lane] = lengths.get(segment.lane, 0) + segment.length
        length = lengths[segment.lane]
        cells[segment.lane] = names[segment.request] + (str(length) if length > 1 else "")
    shown = [cells.get(lane, "·") for lane in range(num_lanes)]
    return " ".join(shown) if num_lanes <= 16 else " ".join(cell for cell in shown if cell != "·")


def _changes(event: StepEvent, names: Mapping[str, str]) -> str:
    parts = [] if event.resumed is None else [english(not_shown(event.resumed))]
    parts += [
        english(f"{names[p.request]} preempted, {p.tokens_lost:,} [token|tokens] lost")
        for p in event.preempted
    ]
    parts += [f"{names[a.request]} admitted to lane {a.lane}" for a in event.admitted]
    for why, group in groupby(sorted(event.stalled, key=lambda s: s.why), key=lambda s: s.why):
        parts.append(
            f"{', '.join(names[s.request] for s in group)} stalled: {english(reason(why))}"
        )
    parts += [f"{names[f.request]} ended ({f.finish_reason})" for f in event.finished]
    if (
        event.waiting.request is not None
        and event.waiting.why is not None
        and (event.admitted or event.finished or event.preempted)
    ):
        parts.append(f"{names[event.waiting.request]} waits: {english(reason(event.waiting.why))}")
    parts += [f"odd: {warning}" for warning in event.warnings]
    return "; ".join(parts)


def _step(step: int | None) -> str:
    return "–" if step is None else str(step)


def _pair(numbers: dict[str, float | None]) -> str:
    left_out = f" ({numbers['left_out']} still waiting)" if numbers.get("left_out") else ""
    return f"{percentile(numbers, 'p50')} / {percentile(numbers, 'p99')}{left_out}"
