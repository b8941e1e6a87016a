"""What the page tells of runs, made in an interpreter that has the standard library and our own
packages alone, as a visitor's tab has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import importlib.abc
import json
import sys

class NothingElse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in ("core", "visualizer") and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not of the standard library")

sys.meta_path.insert(0, NothingElse())

from core.measure.cost_curve import measuring_cost
from core.simulate.roofline import Roofline
from core.simulate.engine import SimulatedEngine
from core.account.perfetto import chrome_trace
from visualizer.documents.comparison import RECORDED, document, fork_document, load
from visualizer.documents.opening import opening
from visualizer.documents.replay import replay
from visualizer.lessons.document import document as lessons_document, recorded
from visualizer.page.bundle import standalone_html
from visualizer.page.figure import figure_replay
from visualizer.page.step import step_page

shown = load(RECORDED / "equal-lengths")
shown.cost = None
points = measuring_cost(SimulatedEngine(Roofline.named("h100", "124m")).executor, repeats=1)
while shown.cost is None:
    try:
        next(points)
    except StopIteration as end:
        shown.cost = end.value
one, other = [run.trace for run in shown.comparison.runs.values()][:2]
compared, forked = document(shown), fork_document(one, other)
assert len(standalone_html(replay(one))) > 100_000 and "</html>" in step_page(one, 1)
assert chrome_trace(one) and figure_replay(one, "de") and opening() and lessons_document(recorded(), "de")["lessons"]
print(json.dumps({"figures": [f["name"] for f in compared["figures"]], "languages": list(forked["translations"])}))
"""  # noqa: E501


@pytest.mark.slow
def test_documents_pages_and_exports_need_the_standard_library_alone():
    ran = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {"total_time", "difference", "latency", "cost_curve"} <= set(found["figures"]) and found[
        "languages"
    ] == ["de"]
