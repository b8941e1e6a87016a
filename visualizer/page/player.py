"""The player as a Gradio component: one gr.HTML that mounts `assets/player` and is then on its own. With `ui.py` the only Gradio here.

Scrubbing never comes back to Python: the player fetches a replay by its address and asks the server only to run, open or export.
"""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from visualizer.documents.catalogue import questions
from visualizer.lessons.document import faq, hints
from visualizer.page.bundle import inert_json, markup, script, standalone_html, style

__all__ = ["Player", "standalone_html"]


class Player(gr.HTML):
    """Fills the viewport. catalogue: the recorded runs, `{"name", "title", "shows", "policy", "steps", "id", "url"}`; the first opens.

    tabs: `{"name", "title"}` of the page's parts, the player's own first; choosing one is the DOM event `inflight-tab`. options: more of the
    player's, which it takes as they are.
    """

    def __init__(self, catalogue: Sequence[dict], tabs: Sequence[dict] = (), options: dict | None = None, **gradio) -> None:
        options = {
            **(options or {}),
            "catalogue": list(catalogue),
            "questions": questions(),
            "tabs": list(tabs),
            "terms": hints(),
            "asked": faq(),
            "server": True,
        }
        super().__init__(
            html_template=_literal(markup()),
            js_on_load=f'Inflight.mount(element.querySelector(".inflight"), {inert_json(options)});',
            head=f"<style>{style()}</style><script>{script()}</script>",
            apply_default_css=False,
            **gradio,
        )

    def get_block_name(self) -> str:
        return "html"


def _literal(html: str) -> str:
    """Markup that Gradio's template languages leave alone: `${…}` and `{{…}}` mean something to them."""
    return html.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${").replace("{{", "\\{{")
