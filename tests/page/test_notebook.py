"""docs/notebook.ipynb, cell by cell as a notebook runs it, and what its cells show."""

from __future__ import annotations

import json
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from transformers.utils import logging

from worlds.browser import settled
from worlds.page_server import ROOT


@pytest.mark.slow
def test_the_notebook_runs_and_shows_a_run_a_race_and_what_happens(visit, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    # what a test of the sandbox offered in this process, for one
    monkeypatch.delitem(sys.modules, "inflight", raising=False)
    logging.enable_progress_bar()  # as they are where the tests have not switched them off
    shell, shown = InteractiveShell.instance(), []
    drawn: list[str] = []
    monkeypatch.setattr(
        shell.display_pub, "publish", lambda data, **about: drawn.append(data.get("text/html", ""))
    )
    try:
        for cell in json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))[
            "cells"
        ]:
            if cell["cell_type"] == "code":
                done = shell.run_cell("".join(cell["source"]))
                assert done.success, f"{cell['source']}\n{done.error_in_exec}"
                shown.append(shell.display_formatter.format(done.result)[0].get("text/html", ""))
    finally:
        logging.disable_progress_bar()
    assert capsys.readouterr().err == ""  # no bars, no warnings
    steps = len(shell.user_ns["streamed"].events)
    assert [text.count("#4477aa") for text in drawn if "#4477aa" in text] == list(
        range(1, steps + 1)
    )
    shown = [text for text in shown if "<iframe" in text]
    assert len(shown) == 2
    page = visit(files={"notebook": f"<html><body>{''.join(shown)}</body></html>"}, drawn=False)
    page.goto("http://page.test/notebook")
    run, race = page.frames[1:]
    settled(run, "window.inflight && inflight.drawn >= 0")
    assert run.evaluate("[inflight.run.length, inflight.run.requests.length]") == [
        len(shell.user_ns["trace"].events),
        3,
    ]
    settled(race, "window.inflightCompare && inflightCompare.doc")
    assert race.evaluate("inflightCompare.doc.names") == ["static", "continuous"]
