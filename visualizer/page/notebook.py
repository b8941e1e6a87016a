"""A trace in a notebook: the player inline, in a frame of its own. Asks no network and no server."""

from __future__ import annotations

import html

from core.trace.trace import Trace
from visualizer.documents.replay import replay
from visualizer.page.bundle import page_html

_HEIGHT = 820


def inline_html(trace: Trace) -> str:
    """What `Trace._repr_html_` gives a notebook."""
    if not trace.events:
        return "<p>An empty trace: nothing has run yet.</p>"
    page = page_html({"replay": replay(trace), "embedded": True})
    return (
        f'<iframe title="Inflight: a run, step by step" srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{_HEIGHT}px;border:0;border-radius:10px"></iframe>'
    )
