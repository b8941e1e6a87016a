"""The list of faults does not rot: what each replaces is still there, once."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest
from mutants.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_can_be_made(fault: Fault):
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    assert source.count(fault.old) == 1, (
        f"{fault.file} has changed: tests/mutants/faults.py follows"
    )
    if fault.file.endswith(".py"):
        assert ast.dump(ast.parse(source.replace(fault.old, fault.new))) != ast.dump(
            ast.parse(source)
        )
    assert all((ROOT / "tests" / test.split("::")[0]).exists() for test in fault.tests)


def test_faults_in_javascript_can_be_read(tmp_path: Path):
    """A module that Node cannot read fails every test, and would prove nothing."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for index, fault in enumerate(fault for fault in FAULTS if fault.file.endswith(".js")):
        source = (ROOT / fault.file).read_text(encoding="utf-8")
        (tmp_path / f"{index}.js").write_text(
            source.replace(fault.old, fault.new), encoding="utf-8"
        )
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
