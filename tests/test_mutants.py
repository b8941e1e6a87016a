"""The list of faults does not rot: what each replaces is still there, once, and CONTRIBUTING shows the list as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutants.faults import FAULTS, Fault, table

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_can_be_made(fault: Fault):
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    assert source.count(fault.old) == 1
    assert ast.dump(ast.parse(source.replace(fault.old, fault.new))) != ast.dump(ast.parse(source))
    assert all((ROOT / "tests" / test.split("::")[0]).exists() for test in fault.tests)


def test_contributing_shows_the_list():
    assert len(FAULTS) == len({fault.what for fault in FAULTS}) >= 40
    assert table() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
