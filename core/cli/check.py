"""`check` verifies a trace; `agree` compares our scheduler with a recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.options import MOST_THREADS, DeviceOptions, Json, TraceFile, engine_for
from core.cli.output import INTERRUPTED, ProgressReporter, finish, print_line, print_note, reading
from core.config import POLICIES, EngineConfig, Execution
from core.errors import InflightError, InvalidTrace, shown
from core.files import require_file
from core.proof.replay import agree as replay_workloads
from core.proof.rerun import RerunResult
from core.proof.verify import OTHERS, PROOFS, CheckResult, verify
from core.recorders.texts import model_folder, tokenizer_of
from core.trace.file import BREAKS_OFF, lines_of
from core.trace.header import Header
from core.trace.messages import english, listed

MOST_WARNINGS = 20

if TYPE_CHECKING:
    from core.torch_engine.engine import Engine


def check(
    trace: TraceFile,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run the model again and compare tokens and margins.")
    ] = False,
    json: Json = False,
) -> None:
    """Verify a trace: checksums, the rules that hold for every run, and every decision, which the
    scheduler takes again.

    Of another engine's run, steps that are against a rule are listed. Exit code 1 for these, for a
    file that breaks off, which is checked up to there, and with the line at fault for a trace that
    cannot be followed. The last lines say what was proved and what was taken on trust.
    """
    require_file(trace)
    lines = 0

    def counted(every: Iterable[str]) -> Iterator[str]:
        nonlocal lines
        for line in every:
            lines += 1
            yield line

    try:
        found = verify(
            counted(reading(lines_of(trace), trace)), tokenizer_of, _engine if rerun else None
        )
    except InvalidTrace as error:
        where = str(error.in_file(trace.name))
        finish(
            {"schema": "check/1", "valid": False, "line": error.line, "fault": str(error)},
            lambda _: print_note(where),
            json,
        )
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        so_far = (
            f": nothing is wrong in {trace.name} up to line {lines - 1:,}, and the rest was not"
            " checked"
            if lines > 1
            else ""
        )
        print_note(f"Interrupted{so_far}.")
        raise typer.Exit(INTERRUPTED) from None
    data = {
        "schema": "check/1",
        "valid": not found.warnings and not found.breaks_off,
        "complete": found.complete,
        "breaks_off": found.breaks_off,
        "steps": found.num_steps,
        "tokens": found.num_tokens,
        "rerun": found.rerun and found.rerun.tokens,
        "ties": found.rerun and found.rerun.ties,
        "parted": found.rerun and found.rerun.parted,
        "not_rerun": found.rerun and found.rerun.drawn,
        "apart": found.rerun and found.rerun.apart,
        "from_outside": found.from_outside,
        "unknown_facts": found.header.unknown,
        "unlike_installed": found.header.unlike_installed,
        "not_replayed": found.not_replayed,
        "not_decoded": found.not_decoded,
        "texts_as_ids": found.texts_as_ids,
        "never_bound": found.never_bound,
        "warnings": [{"step": step, "says": warning} for step, warning in found.warnings],
        "unrecorded": found.unrecorded,
        "skipped": found.skipped,
        "proofs": {fact: found.proof_of(fact) for fact in PROOFS},
        "findings": list(findings(found)),
        "believed": (
            {fact: believed for fact, (_, believed) in OTHERS.items() if believed}
            if found.header.engine
            else {}
        ),
    }
    finish(data, lambda _: _print_result(trace.name, found), json)
    if found.warnings or found.breaks_off:
        raise typer.Exit(1)


def agree(
    workloads: Annotated[
        Path, typer.Argument(help="Recorded workloads, .jsonl or .jsonl.gz.", metavar="FILE")
    ],
    json: Json = False,
) -> None:
    """Replay workloads recorded from another engine's scheduler on ours, decision by decision; exit
    code 1 if any differs.
    """
    require_file(workloads)
    with ProgressReporter(f"Replaying {workloads.name}"):
        found = replay_workloads(workloads)
    finish({"schema": "agree/1", **asdict(found)}, _print_agreement, json)
    if found.identical < found.workloads:
        raise typer.Exit(1)


def _print_agreement(data: dict[str, Any]) -> None:
    print_line(
        f"{data['identical']:,} of {data['workloads']:,} workloads are decided alike in every step;"
        f" the other engine took {data['steps']:,} steps."
    )
    for kind, count in data["first_differences"].items():
        print_line(f"    {count:,} differ first in: {kind}")


def _print_result(name: str, found: CheckResult) -> None:
    cut = "" if found.complete or found.breaks_off else "; the run was cut short"
    held = english(
        f"{found.num_steps:,} [step|steps], {found.num_tokens:,} [token|tokens],"
        f" {found.num_requests:,} [request|requests]{cut}"
    )
    if engine := found.header.engine:
        odd = ", but not all of it can be true" if found.warnings else ""
        print_line(f"{name} can be followed{odd}: {held}.")
        print_line(
            f"It claims that {engine} ran. None of its decisions was taken again: whoever wrote the"
            " file may have invented them."
        )
    elif found.not_replayed:
        print_line(f"{name} can be followed: {held}.")
        print_line(
            f"None of its decisions was taken again, as {found.not_replayed}: whoever wrote the"
            " file may have invented them."
        )
    else:
        print_line(f"{name} is valid{' as far as it goes' if found.breaks_off else ''}: {held}.")
    if found.breaks_off:
        print_line(BREAKS_OFF)
    for step, warning in found.warnings[:MOST_WARNINGS]:
        print_line(f"step {step}: {warning}")
    if (more := len(found.warnings) - MOST_WARNINGS) > 0:
        print_line(english(f"… and {more:,} more [warning|warnings]; --json has them all."))
    for text in findings(found):
        print_line(text)


def findings(found: CheckResult) -> Iterator[str]:
    """Sentences on what was proved, what was bounded, and what is taken on trust."""
    header = found.header
    if found.not_replayed:
        odd = (
            english(f"; {len(found.warnings):,} [time|times] they were not, see above")
            if found.warnings
            else ""
        )
        yield (
            f"Decisions: not taken again, as {found.not_replayed}; the rules that hold for every"
            f" policy were followed{odd}."
        )
    else:
        last = (
            " but those of the last step" if header.is_asynchronous and not found.complete else ""
        )
        unlike = header.unlike_installed
        told = f", with another {listed(unlike)} than the installed one" if unlike else ""
        yield (
            f"Decisions: all{last} taken again by the scheduler under the policy"
            f" {header.policy.name}{told}, and the same; what would not change them does not show,"
            " such as another policy, switch or block size, an arrival between the same steps, or a"
            " priority where the policy has none."
        )
    if found.never_bound:
        yield (
            "Limits that never bound with nothing left, so their sizes are taken on trust:"
            f" {', '.join(found.never_bound)}."
        )
    if found.from_outside:
        cancelled, failed = (found.from_outside.get(why, 0) for why in ("cancelled", "error"))
        yield (
            f"Ends from outside: {cancelled:,} cancelled, {failed:,} failed. That these requests"
            " ended so, what more they had asked for, and so who had their lanes and blocks from"
            " then on, is taken on trust."
        )
    if not found.complete:
        yield "End: that the run was cut there, and what came after it, is taken on trust."
    if unknown := header.unknown:
        yield (
            f"Header: what this version does not know, such as {shown(unknown[0])}, is taken on"
            " trust."
        )
    if header.engine:
        yield from _of_another(found)
        return
    if header.is_interactive:
        yield (
            "Arrivals: in order; when they came is taken on trust, as requests came while it ran."
        )
    part = "part of the device's" if header.is_asynchronous else "part"
    yield (
        "Times: those that the cost model in the header gives, computed again; its numbers are"
        " taken on trust."
        if found.is_retimed
        else f"Times: in order, and no {part} longer than the whole; their values are taken on"
        " trust."
    )
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(header)
    yield _texts(found)
    yield (
        "Whether it ran live, the names of the workload and its requests, whether a prompt was a"
        " text, machine, memory, number format, how passes were computed, versions, notes and"
        " dates: taken on trust."
    )


def _of_another(found: CheckResult) -> Iterator[str]:
    """Sentences on what is taken on trust in another engine's run."""
    yield from _rerun(found.rerun) if found.rerun else _not_rerun(found.header)[:1]
    yield _texts(found)
    if found.unrecorded:
        yield english(
            f"In {found.unrecorded:,} of {found.num_steps:,} [step|steps] why a request waits,"
            " stalls or is cut is not recorded."
        )
    if found.skipped:
        yield english(
            f"In {found.skipped:,} of {found.num_steps:,} [step|steps] the engine is said to"
            " have skipped the first who waits, whatever the limits: taken on trust."
        )
    yield "Nothing in the file can prove the rest, which is taken on trust:"
    yield from (f"    {fact}: {believed}" for fact, (_, believed) in OTHERS.items() if believed)


def _rerun(again: RerunResult) -> Iterator[str]:
    probabilities = (
        "whose probabilities are not on record"
        if again.apart is None
        else f"with probabilities and margins at most {again.apart:.2g} from those on record"
    )
    yield (
        f"Tokens: {again.tokens:,} written again by the model, {probabilities}; a difference of"
        f" {again.rounding} in a logit may be rounding, and is taken on trust."
    )
    yield (
        "Sampling: it gives these tokens; what made no difference to them, such as a stop string"
        " that never occurs, is taken on trust."
    )
    if again.ties:
        yield english(
            f"Of these {again.ties:,} [is|are] not the one that is best here, but behind it by no"
            " more than that, and the request was run on from the one on record."
        )
    if again.parted:
        yield english(
            f"Of these {again.parted:,} [was|were] chosen otherwise here by temperature or"
            " penalties, as may happen in 16 bits, or [follows|follow] such a choice: taken on"
            " trust."
        )
    if again.drawn:
        yield english(
            f"{again.drawn:,} more [was|were] drawn by another engine's noise, which is not ours:"
            " taken on trust."
        )
    if again.facts:
        yield f"Model: the same {', '.join(again.facts)} as on record."
    else:
        yield "Model: nothing of it is on record but its name."


def _not_rerun(header: Header) -> list[str]:
    inside = "" if header.model.vocab_size is None else "inside the vocabulary; "
    if header.is_simulated:
        return [
            f"Tokens: {inside}made up, as no model ran.",
            "Model: its facts, as none ran: taken on trust.",
        ]
    return [
        (
            f"Tokens: {inside}which they are, how probable they were, and the sampling that chose"
            " them, is taken on trust (--rerun runs the model again)."
        ),
        (
            "Model: that it ran, its facts, and whether requests read each other's keys: taken on"
            " trust."
        ),
    ]


def _texts(found: CheckResult) -> str:
    if found.not_decoded:
        return f"Texts: taken on trust, as {found.not_decoded}."
    if found.texts_as_ids == found.num_requests > 0:
        return (
            "Texts: none on record; in their place are the ids of the tokens, and they are the"
            " same."
        )
    if found.header.is_simulated:
        return (
            "Texts: those of the prompts, decoded again from their tokens, and the same; made-up"
            " tokens have none."
        )
    decoded = "Texts: decoded again from the tokens, and the same"
    if not found.texts_as_ids:
        return f"{decoded}."
    count = f"{found.texts_as_ids:,} of {found.num_requests:,}"
    return f"{decoded}; {count} requests have the ids of their tokens in place of texts."


def _engine(header: Header) -> Engine:
    """An engine for the model of a trace, as it ran. Raises InflightError if it cannot be run."""
    if header.is_simulated:
        raise InflightError("A simulated run has no model to run again.")
    name = str(header.model.name)
    threads = header.threads and min(header.threads, MOST_THREADS)  # whatever the file says
    device_options = DeviceOptions(header.device.split(":")[0], header.dtype, threads)
    if header.engine is None:
        config = header.config if header.policy.name in POLICIES else EngineConfig()
    else:
        if lacking := [fact for fact in ("tokens", "prompts") if fact in header.absent]:
            raise InflightError(
                f"Its {lacking[0]} are not on record, so its requests cannot be run again."
            )
        if (folder := model_folder(name)) is None:
            raise InflightError(
                f"The model {shown(name)} is neither built in nor a folder here, so its tokens"
                " cannot be computed again."
            )
        name = str(folder)
        config = EngineConfig()
        device_options = DeviceOptions(dtype=header.dtype or "auto")
    engine = engine_for(name, config, device_options, Execution())
    if header.leak:
        from core.proof.mistakes import leaky_engine  # with torch

        return leaky_engine(engine.adapter, engine.tokenizer, header.config)
    return engine
