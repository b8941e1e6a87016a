"""docs/command-line.md says what is so: every command and option that it names is there; and every
`--json` output has the keys that docs/json.md lists.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.account.metrics import DEFINITIONS
from core.cli import COMMANDS, app
from worlds.documented import check, schemas

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
KEYS = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
DATA = ROOT / "tests" / "data"
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", KEYS, re.MULTILINE | re.DOTALL)
)


def outputs(*arguments: str) -> Any:
    data = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert next(iter(data)) == "schema" and f"| `schema` | string | `{data['schema']}` |" in KEYS
    return data


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("docs") / "t.jsonl"
    assert (
        CliRunner()
        .invoke(app, ["run", "-p", "chunk-7-by-4", "-m", "shakespeare-char", "--out", str(path)])
        .exit_code
        == 0
    )
    return str(path)


def test_run_and_metrics():
    (schema, _), (numbers,) = schemas(SECTIONS["run"]), schemas(SECTIONS["metrics"])
    data = outputs("run", "-p", "chunk-7-by-4", "-m", "shakespeare-char", "--slo", "ttft=9")
    check(data, schema)
    assert set(numbers) == set(DEFINITIONS) == set(data["metrics"])


def test_show_and_check(trace, tmp_path):
    check(outputs("show", trace), schemas(SECTIONS["run"])[0])
    check(outputs("show", trace, "--step", "0"), schemas(SECTIONS["show"])[0])
    valid, invalid = schemas(SECTIONS["check"])
    check(outputs("check", trace), valid)
    (broken := tmp_path / "broken.jsonl").write_text(
        Path(trace).read_text(encoding="utf-8").replace("decode", "prefill"), encoding="utf-8"
    )
    check(outputs("check", str(broken)), invalid)


def test_lists():
    for name, schema in zip(
        ("presets", "models"), schemas(SECTIONS["presets and models"]), strict=True
    ):
        check(outputs(name), schema)


@pytest.mark.slow
def test_agree_and_import(tmp_path):
    check(
        outputs("agree", str(DATA / "transformers-5.23.0-scheduler.jsonl.gz")),
        schemas(SECTIONS["agree"])[0],
    )
    raw = str(DATA / "vllm-0.32.raw.jsonl.gz")
    check(
        outputs("import", raw, "--out", str(tmp_path / "v.jsonl")), schemas(SECTIONS["import"])[0]
    )


def test_watch(tmp_path):
    (raw := tmp_path / "run.raw.jsonl").write_bytes(
        gzip.decompress((DATA / "vllm-0.32.raw.jsonl.gz").read_bytes())
        + b'{"kind": "end", "dropped": 0}\n'
    )
    told = [
        json.loads(line)
        for line in CliRunner().invoke(app, ["watch", str(raw), "--json"]).stdout.splitlines()
    ]
    for line in told:
        check(line, schemas(SECTIONS["watch"])[0])
        assert line["schema"] == "watch/1" and line["kind"] in line
    assert [line["kind"] for line in told].count("step") == 183 and {
        line["kind"] for line in told
    } == {"begun", "step", "says"}


def test_workload(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "".join(
            f'{{"timestamp": {i * 100}, "input_length": 40, "output_length": 9, "hash_ids":'
            f" [{i}]}}\n"
            for i in range(4)
        )
    )
    check(
        outputs("workload", str(file), "--out", str(tmp_path / "w.json")),
        schemas(SECTIONS["workload"])[0],
    )


def test_fit():
    check(outputs("fit", str(ROOT / "assets/traces/gpt2-six.jsonl")), schemas(SECTIONS["fit"])[0])


def test_plan():
    run = str(ROOT / "assets/traces/gpt2-six.jsonl")
    data = outputs("plan", run, "--lanes", "1,2", "--blocks", "1,200", "--slo", "ttft=1")
    check(data, schemas(SECTIONS["plan"])[0])
    told = outputs("plan", run, "--lanes", "2", "--request", "r0")
    check(told, schemas(SECTIONS["plan"])[0])


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        pytest.param(
            ("-m", "shakespeare-char", "--repeats", "1"), "measured", marks=pytest.mark.slow
        ),
        (("--simulate", "h100:8b"), "simulated"),
    ],
)
def test_compare(asked, source):
    data = outputs("compare", "-p", "chunk-7-by-4", *asked)
    check(data, schemas(SECTIONS["compare"])[0])
    assert (data["source"], data["workload"], data["complete"]) == (source, "chunk-7-by-4", True)


def test_every_command_has_a_section_and_every_option_exists():
    titles = " ".join(re.findall(r"^## (.+)", TEXT, re.MULTILINE)).split()
    assert [name for name in COMMANDS if name not in titles] == []
    helps = [CliRunner().invoke(app, [name, "--help"]).stdout for name in COMMANDS]
    known = set(re.findall(r"--[a-z][a-z-]*", " ".join(helps)))
    assert set(re.findall(r"`?(--[a-z][a-z-]+)", TEXT)) - known - {"--no-"} == set()


def test_every_variable_of_ours_is_named_where_it_is_read():
    text = (ROOT / "docs" / "space-and-site.md").read_text(encoding="utf-8")
    sources = [
        ROOT / "app.py",
        *(ROOT / "core").rglob("*.py"),
        *(ROOT / "visualizer").rglob("*.py"),
        *(ROOT / ".ci").iterdir(),
    ]
    read = {
        name
        for path in sources
        for name in re.findall(r"INFLIGHT_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8"))
    }
    assert read and {name for name in read if f"`{name}`" not in text} == set()
