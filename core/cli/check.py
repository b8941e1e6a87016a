"""`check` verifies a trace; `agree` compares our scheduler with a recorded one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.options import DeviceOptions, Json, TraceFile, engine_for, require_file
from core.cli.output import finish, print_line, print_note
from core.config import Execution
from core.errors import InflightError, InvalidTrace
from core.measure.replay import agree as replay_workloads
from core.measure.verify import PROOFS, CheckResult, verify
from core.models.tokenizer import local_tokenizer
from core.trace.file import lines_of
from core.trace.header import Header
from core.trace.messages import english

MOST_WARNINGS = 20

if TYPE_CHECKING:
    from core.runner.engine import Engine


def check(
    trace: TraceFile,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run the model again and compare tokens and margins.")] = False,
    json: Json = False,
) -> None:
    """Verify a trace: checksums, the rules that hold for every run, and every decision, which the scheduler takes again.

    Of another engine's run, steps that are against a rule are listed; it is valid all the same. Exit code 1 and the line at fault if it fails. The last lines say what was proved and what was taken on trust.
    """
    require_file(trace)
    try:
        found = verify(lines_of(trace), local_tokenizer, _engine if rerun else None)
    except InvalidTrace as error:
        where = f"{trace.name}, {error}" if error.line else f"{trace.name}: {error}"
        finish({"valid": False, "line": error.line, "fault": str(error)}, lambda _: print_note(where), json)
        raise typer.Exit(1) from None
    data = {
        "valid": True,
        "complete": found.complete,
        "steps": found.num_steps,
        "tokens": found.num_tokens,
        "rerun": found.rerun,
        "never_bound": found.never_bound,
        "warnings": [{"step": step, "says": warning} for step, warning in found.warnings],
        "proofs": {fact: found.proof_of(fact) for fact in PROOFS},
    }
    finish(data, lambda _: _print_result(trace.name, found), json)


def agree(
    workloads: Annotated[Path, typer.Argument(help="Recorded workloads, .jsonl or .jsonl.gz.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Replay workloads recorded from another engine's scheduler on ours, decision by decision; exit code 1 if any differs."""
    require_file(workloads)
    found = replay_workloads(workloads)
    finish(asdict(found), _print_agreement, json)
    if found.identical < found.workloads:
        raise typer.Exit(1)


def _print_agreement(data: dict[str, Any]) -> None:
    print_line(
        f"{data['identical']:,} of {data['workloads']:,} workloads are decided alike in every step; the other engine took {data['steps']:,} steps."
    )
    for kind, count in data["first_differences"].items():
        print_line(f"    {count:,} differ first in: {kind}")


def _print_result(name: str, found: CheckResult) -> None:
    cut = "" if found.complete else "; the run was cut short"
    print_line(f"{name} is valid: {found.num_steps} steps, {found.num_tokens} tokens, {found.num_requests} requests{cut}.")
    for step, warning in found.warnings[:MOST_WARNINGS]:
        print_line(f"step {step}: {warning}")
    if (more := len(found.warnings) - MOST_WARNINGS) > 0:
        print_line(english(f"… and {more:,} more [warning|warnings]; --json has them all."))
    for text in findings(found):
        print_line(text)


def findings(found: CheckResult) -> list[str]:
    """What was proved, what was bounded, and what is taken on trust."""
    if found.not_replayed:
        lines = [f"Decisions: not taken again, as {found.not_replayed}; the rules that hold for every policy were followed."]
    else:
        lines = [
            f"Decisions: all taken again by the scheduler under the policy {found.header.policy.name}, and the same; another policy, "
            "switch or block size under which they would be the same does not show."
        ]
    if found.never_bound:
        lines.append(f"Limits that never bound, so their sizes are taken on trust: {', '.join(found.never_bound)}.")
    if found.header.is_interactive:
        lines.append("Arrivals: in order; when they came is taken on trust, as requests came while it ran.")
    lines.append("Times: in order, and no part longer than the whole; their values are taken on trust.")
    if found.rerun is not None:
        lines.append(f"Tokens: {found.rerun} written again by the model, with the same probabilities and margins.")
        lines.append("Model: of the type, sizes, windows and end tokens on record.")
    else:
        lines.append(
            "Tokens: inside the vocabulary; which they are, and the sampling that chose them, is taken on trust (--rerun runs the model again)."
        )
        ran = (
            "its facts, as none ran"
            if found.header.is_simulated
            else "that it ran, its facts, and whether requests read each other's keys"
        )
        lines.append(f"Model: {ran}: taken on trust.")
    lines.append(
        f"Texts: taken on trust, as {found.not_decoded}."
        if found.not_decoded
        else "Texts: decoded again from the tokens, and the same."
    )
    lines.append("Machine, how passes were computed, versions, notes and dates: taken on trust.")
    return lines


def _engine(header: Header) -> Engine:
    """An engine for the model of a trace, as it ran."""
    if header.is_simulated:
        raise InflightError("A simulated run has no model to run again.")
    device_options = DeviceOptions(header.device.split(":")[0], header.dtype, header.threads)
    engine = engine_for(str(header.model.name), header.config, device_options, Execution())
    if header.leak:
        from core.measure.mistakes import leaky_engine  # with torch

        return leaky_engine(engine.adapter, engine.tokenizer, header.config)
    return engine
