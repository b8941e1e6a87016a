"""docs/command-line.md says what is so: every command and option that it names is there, and every `--json` output has the keys that it lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from core.cli import BENCHES, COMMANDS, app
from core.measure.metrics import DEFINITIONS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
DATA = ROOT / "tests" / "data"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def schemas(section: str) -> list[dict[str, bool]]:
    """The tables of keys in a section: each key, and whether it may be missing."""
    tables = re.findall(r"^\| key \| type \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)", SECTIONS[section], re.MULTILINE)
    found = []
    for table in tables:
        cells = [row.split(" | ")[0] for row in table.splitlines()]
        found.append({key: bool(optional) for cell in cells for key, optional in re.findall(r"`([^`]+)`(\??)", cell)})
    return found


def at(data: Any, path: str) -> Iterator[Any]:
    """What lies under a dotted path: `[]` are the items of a list, `*` the values of an object."""
    here, _, rest = path.removeprefix(".").partition(".")
    name, is_list = here.removesuffix("[]"), here.endswith("[]")
    found = list(data.values()) if name == "*" else [data[name]] if name else [data]
    for value in (item for one in found for item in (one if is_list else [one])):
        yield from at(value, rest) if rest else [value]


def outputs(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)


def check(data: Any, schema: dict[str, bool]) -> None:
    """Each key that is listed is there, and no other at the top."""
    one = data[0] if isinstance(data, list) else data
    top = {key.removeprefix("[].") for key in schema}
    assert set(one) <= {re.split(r"[.\[]", key)[0] for key in top}
    for key, optional in schema.items():
        if optional and key not in one:
            continue
        assert list(at(data, key)), key


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("docs") / "t.jsonl"
    assert CliRunner().invoke(app, ["run", "-p", "chunk-7-by-4", "-m", "shakespeare-char", "--out", str(path)]).exit_code == 0
    return str(path)


def test_run_and_metrics():
    (schema,), (numbers,) = schemas("run"), schemas("metrics")
    data = outputs("run", "-p", "chunk-7-by-4", "-m", "shakespeare-char", "--slo", "ttft=9")
    check(data, schema)
    assert set(numbers) == set(DEFINITIONS) == set(data["metrics"])


def test_show_and_check(trace, tmp_path):
    check(outputs("show", trace), schemas("run")[0])
    check(outputs("show", trace, "--step", "0"), schemas("show")[0])
    valid, invalid = schemas("check")
    check(outputs("check", trace), valid)
    (broken := tmp_path / "broken.jsonl").write_text(Path(trace).read_text(encoding="utf-8")[:-200], encoding="utf-8")
    check(outputs("check", str(broken)), invalid)


def test_lists():
    for name, schema in zip(("presets", "models"), schemas("presets and models"), strict=True):
        check(outputs(name), schema)


def test_agree_and_import(tmp_path):
    check(outputs("agree", str(DATA / "transformers-5.23.0-scheduler.jsonl.gz")), schemas("agree")[0])
    raw = str(DATA / "vllm-0.32.raw.jsonl.gz")
    check(outputs("import", raw, "--out", str(tmp_path / "v.jsonl")), schemas("import")[0])


def test_workload(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "".join(f'{{"timestamp": {i * 100}, "input_length": 40, "output_length": 9, "hash_ids": [{i}]}}\n' for i in range(4))
    )
    check(outputs("workload", str(file), "--out", str(tmp_path / "w.json")), schemas("workload")[0])


def test_compare():
    data = outputs("compare", "-p", "chunk-7-by-4", "-m", "shakespeare-char", "--repeats", "1")
    check(data, schemas("compare")[0])


def test_benchmarks():
    check(outputs("bench", "speed", "static-step", "--quick", "--repeats", "1"), schemas("bench speed")[0])
    points, stream = schemas("bench load")
    check(outputs("bench", "load", "--rate", "5", "--simulate", "l4:1b", "--point-seconds", "1"), points)
    check(outputs("bench", "load", "--requests", "20", "--simulate", "l4:1b"), stream)


def test_every_command_has_a_section_and_every_option_exists():
    titles = " ".join(SECTIONS)
    assert [name for name in COMMANDS if name not in titles.split()] == []
    assert [name for name in BENCHES if f"bench {name}" not in SECTIONS] == []
    helps = [CliRunner().invoke(app, [*name.split(), "--help"]).stdout for name in (*COMMANDS, *(f"bench {b}" for b in BENCHES))]
    known = set(re.findall(r"--[a-z][a-z-]*", " ".join(helps)))
    assert set(re.findall(r"`?(--[a-z][a-z-]+)", TEXT)) - known - {"--no-"} == set()
