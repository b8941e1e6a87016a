"""`fit`: the cost of a forward pass, from a recorded run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import Json, Out
from core.cli.output import ProgressReporter, finish, percent, print_line, print_note, table
from core.cli.report import cost_sentences
from core.files import require_file, require_writable
from core.recorders.convert import open_run
from core.simulate.cost import Load
from core.simulate.fitted import SCHEMA, Linear
from core.simulate.named import cost_in

_PROMPT, _CACHE = 1000, 500  # tokens in the passes that are given as examples


def fit(
    file: Annotated[
        Path,
        typer.Argument(
            help="A trace, a raw recording of another engine, or a cost that was saved.",
            show_default=False,
        ),
    ],
    out: Out = None,
    json: Json = False,
) -> None:
    """Fit what a forward pass costs to a recorded run, with the error on steps that were left out
    of the fit.

    `--simulate` takes the file that --out saves.
    """
    require_file(file)
    require_writable(out, read=[file])
    with ProgressReporter(f"Reading {file.name}"):
        cost = cost_in(file, open_run)
    data = {"schema": SCHEMA, **cost.to_json(), "examples": examples(cost)}
    finish(data, lambda _: _print(cost, data["examples"]), json, out)
    if out is not None:
        worth = ", for what it is worth" if cost.is_useless else ""
        print_note(f"Saved {out.name}; `--simulate {out}` takes it{worth}.")


def examples(cost: Linear) -> list[dict[str, Any]]:
    """The time of some passes by this cost. pass: its description; seconds; beyond: whether no pass
    so small or so large was measured.
    """
    each = cost.kv_bytes_per_token
    prompt = Load(_PROMPT, _PROMPT * each, Load.pairs_of(_PROMPT, _PROMPT))
    passes = {
        f"a decode step of 1 request, {_CACHE} tokens in its cache": Load(1, _CACHE * each, _CACHE)
    }
    passes[f"a decode step of 16 requests, {_CACHE} tokens in each cache"] = Load(
        16, 16 * _CACHE * each, 16 * _CACHE
    )
    passes[f"a prompt of {_PROMPT:,} tokens in one pass"] = prompt
    return [
        {"pass": said, "seconds": cost.seconds(load), "beyond": cost.beyond(load)}
        for said, load in passes.items()
    ]


def _print(cost: Linear, found: list[dict[str, Any]]) -> None:
    for text in cost.assumptions:
        print_line(text)
    print_line()
    each = (
        ("each position computed", cost.per_token_s),
        ("each 1,000 tokens of KV cache read", 1000 * cost.kv_bytes_per_token * cost.per_kv_byte_s),
        ("each million pairs of attention", 1e6 * cost.per_pair_s),
    )
    terms = [_time(cost.base_s), *(f"{_time(took)} for {what}" for what, took in each if took)]
    print_line(f"A pass takes {' + '.join(terms)}.")
    for what, took in each[:2]:
        if not took:
            print_line(f"For {what} no time could be told from the rest.")
    print_line()
    rows = [
        (one["pass"], _time(one["seconds"]), "beyond what was measured" if one["beyond"] else "")
        for one in found
    ]
    table(("a pass", "takes", ""), rows, right=("takes",))
    print_line()
    least, most = cost.least, cost.most
    print_line(
        f"Measured: {least.tokens:,} to {most.tokens:,} positions and"
        f" {least.kv_bytes // cost.kv_bytes_per_token:,} to"
        f" {most.kv_bytes // cost.kv_bytes_per_token:,} tokens of KV cache in a pass. Beyond that"
        " the line is only drawn on."
    )
    for text in cost_sentences({"error": cost.error}):
        print_line(text)
    if turns := cost.error.get("in_turns"):
        print_line(
            "With every fifth step left out instead, beside steps that the fit has seen:"
            f" {percent(turns['median'])}, {percent(turns['p90'])}, {percent(turns['total'])},"
            f" {percent(turns['worst'])}."
        )


def _time(seconds: float) -> str:
    """A time with three digits and its unit."""
    rounded = float(f"{seconds:.3g}")
    unit, number = "µs", 1e6 * seconds
    if rounded >= 1:
        unit, number = "s", seconds
    elif rounded >= 1e-3:
        unit, number = "ms", 1e3 * seconds
    return f"{number:,.0f} {unit}" if number >= 100 or not number else f"{number:.3g} {unit}"
