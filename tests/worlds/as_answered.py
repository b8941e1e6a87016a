"""What commands print, what a grade says of every wrong answer, and what the page is given of
comparisons that ship, as text.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner

from core.cli import app
from core.config import ASSETS
from visualizer.documents.comparison import RECORDED, document, load
from visualizer.write.cases import here
from visualizer.write.exercises import checking
from visualizer.write.grade import Grade, ended
from worlds.digests import compact, digest, shortened
from worlds.wrong_answers import HEAD, WRONG

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
DATA = Path(__file__).parents[1] / "data"
SHOWN = ("engines-kv-pressure", "poisson-32", "scheduler-zoo", "where-padding-costs")
TRACES = ASSETS / "traces"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.97,4808,10
2023-11-16 18:17:04.03,8100,5
"""
COMMANDS = (
    f"show {TRACES}/kv-pressure.jsonl --steps",
    f"show {TRACES}/chunk-7-7-6.jsonl --step 2",
    f"show {TRACES}/verses-static.jsonl --json",
    f"check {TRACES}/one-request.jsonl",
    f"import {DATA}/vllm-0.32-speculation.raw.jsonl.gz --out imported.jsonl",
    "check imported.jsonl",
    "show imported.jsonl --steps",
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
    made = {"comparisons": of_comparisons, "commands": of_commands, "grades": of_grades}
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
    """Every help, then commands on files that ship or were made by one before."""
    for name in sorted(get_command(app).commands):
        yield from printed(f"{name} --help")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "azure.csv").write_text(AZURE, encoding="utf-8")
        before = Path.cwd()
        os.chdir(folder)
        try:
            for command in COMMANDS:
                yield from printed(command)
        finally:
            os.chdir(before)


def printed(command: str) -> Iterator[str]:
    """A command, its exit code, and what it prints."""
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "100", "TERM": "dumb"})
    yield f"$ {command.replace(str(TRACES), 'traces').replace(str(DATA), 'data')}"
    if result.exit_code:
        yield f"exit code {result.exit_code}: {result.exception}"
    said = result.output if result.exit_code else result.stdout  # progress goes to stderr
    yield from (line.rstrip() for line in said.splitlines())


def of_grades() -> Iterator[str]:
    """What is said of every wrong answer to an exercise."""
    for name, titles in WRONG.items():
        for title, (code, _) in titles.items():
            yield f"-- {name}, {title}"
            result = ended(checking(name, here(HEAD + code), 0))
            yield ADDRESS.sub("", Grade(name, result, 0.5).said())
