"""What starting costs, told by what is imported, not by how long it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"numpy", "torch", "transformers", "gradio", "plotly", "fastapi", "pandas"}


def said(code: str) -> list[str]:
    """What a process of its own prints last."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("program", ["core.__main__", "visualizer.__main__", "app"])
def test_a_help_text_loads_nothing_that_computes_or_serves(program):
    code = f"""
import sys
from {program} import main
try: main(["--help"])
except SystemExit: pass
print("loaded", *sorted({HEAVY!r} & sys.modules.keys()))"""
    assert said(code) == ["loaded"]


def test_the_page_imports_gradio_without_the_stubs_that_it_writes(tmp_path):
    """Without `skip_stubs` there would be a `mine.pyi`."""
    (tmp_path / "mine.py").write_text("import gradio\n\n\nclass Mine(gradio.HTML):\n    pass\n")
    code = f"""
import sys
from visualizer.page.stubs import skip_stubs
skip_stubs()
sys.path.insert(0, {str(tmp_path)!r})
import mine
print(mine.Mine("x").value)"""
    assert said(code) == ["x"] and not list(tmp_path.glob("*.pyi"))
