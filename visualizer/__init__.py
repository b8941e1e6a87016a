"""The page on which a run is watched. Reads traces and events; starts and stops engines only through core's public names.

Importing it lets notebooks display traces: the player inline, in its own frame, without network or server.
"""

from core.trace.trace import Trace


def _repr_html_(self: Trace) -> str:
    import html

    from visualizer.documents.replay import replay
    from visualizer.page.bundle import page_html  # read from disk when a notebook needs it

    if not self.events:
        return "<p>An empty trace: nothing has run yet.</p>"
    page = page_html({"replay": replay(self), "embedded": True})
    return (
        f'<iframe title="Inflight: a run, step by step" srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
        'style="width:100%;height:820px;border:0;border-radius:10px"></iframe>'
    )


Trace._repr_html_ = _repr_html_  # type: ignore[attr-defined]  # core does not know this package
