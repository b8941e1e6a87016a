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
from core.proof.verify import OTHERS, PROOFS, CheckResult, findings, verify
from core.recorders.texts import model_folder, tokenizer_of
from core.trace.file import BREAKS_OFF, lines_of
from core.trace.header import Header
from core.trace.messages import english

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
