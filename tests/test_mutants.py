"""The list of faults does not rot: what each replaces is still there, once."""

from __future__ import annotations

import ast
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from mutants.faults import FAULTS

ROOT = Path(__file__).resolve().parent.parent


@cache
def source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_every_fault_can_be_made():
    """Where a file has changed, tests/mutants/faults.py follows."""
    assert not [
        (fault.file, fault.what) for fault in FAULTS if source(fault.file).count(fault.old) != 1
    ]
    named = {tuple(test.split("::")) for fault in FAULTS for test in fault.tests}
    assert not [
        (file, *test)
        for file, *test in named
        if not (ROOT / "tests" / file).exists()
        or not all(f"def {name.split('[')[0]}(" in source(f"tests/{file}") for name in test)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted({f.file for f in FAULTS if f.file.endswith(".py")}))
def test_a_fault_in_python_is_another_program(file: str):
    whole = ast.dump(ast.parse(source(file)))
    for fault in FAULTS:
        if fault.file == file:
            made = ast.parse(source(file).replace(fault.old, fault.new))
            assert ast.dump(made) != whole, fault.what


def test_faults_in_javascript_can_be_read(tmp_path: Path):
    """A module that Node cannot read fails every test, and would prove nothing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for index, fault in enumerate(fault for fault in FAULTS if fault.file.endswith(".js")):
        changed = source(fault.file).replace(fault.old, fault.new)
        (tmp_path / f"{index}.js").write_text(changed, encoding="utf-8")
    script = (
        "for (const path of process.argv.slice(1)) new vm.SourceTextModule(fs.readFileSync(path,"
        " 'utf8'), { identifier: path })"
    )
    command = [
        node,
        "--no-warnings",
        "--experimental-vm-modules",
        "--eval",
        script,
        *sorted(map(str, tmp_path.iterdir())),
    ]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr


def test_each_fault_has_a_name_of_its_own():
    assert len(FAULTS) == len({fault.what for fault in FAULTS}) >= 40
