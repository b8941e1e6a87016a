"""The Gradio app: one Blocks with the player, the server's functions as its API, and how it is launched.

With `player.py` the only module here that knows Gradio.
"""

import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
from starlette.middleware import Middleware

from core.errors import InflightError
from core.models.tensor_parallel import world_size
from visualizer.documents.catalogue import TRACES
from visualizer.page.player import Player
from visualizer.page.tabs import options as parts_of
from visualizer.page.tabs import parts_script, write_files
from visualizer.server.api import Server
from visualizer.server.comparisons import Tasks
from visualizer.server.limits import Limits, limits
from visualizer.server.middleware import MaxBody, PackedFront

_EVERYBODY = 200  # requests served at once; runs have a line of their own


def build(server: Server, tasks: Tasks | None = None, parts: dict | None = None) -> gr.Blocks:
    """The page. Watch is there from the start; each of `parts` (see assets/player/parts/tabs.js) is fetched when its tab is first opened."""
    tabs = next(iter(parts.values()))["options"]["tabs"] if parts else ()
    with gr.Blocks(title="Inflight", fill_width=True, fill_height=True, analytics_enabled=False) as page:
        Player(server.catalogue, tabs=tabs, elem_id="watch")
        _api(server)
        if tasks is not None:
            gr.HTML(
                html_template="<div></div>",
                js_on_load=f"inflightParts(element, {json.dumps(parts)});",
                head=f"<script>{parts_script()}</script>",
                apply_default_css=False,
                elem_id="parts",
            )
            _compare_api(tasks)
    return page.queue(default_concurrency_limit=None)


def _api(server: Server) -> None:
    """The server's functions as HTTP endpoints, `gradio_api/call/<name>`."""

    async def run(spec: dict, request: gr.Request) -> AsyncIterator[dict | str]:
        """Run a workload and stream what happens.

        spec: {"workload", "config", "model", "device", "visitor", "as_text"}. A visitor has one run at a time. as_text: each delta as
        JSON text, which spares the engine the turns that Gradio takes to walk through objects.
        """
        told = spec if isinstance(spec, dict) else {}
        visitor = str(told.get("visitor") or request.session_hash)[:64]
        asked = {k: v for k, v in told.items() if k not in ("visitor", "as_text")} if told else spec
        apart = "/queue/" in request.url.path  # gradio_client is sent differences, which Gradio 6.31 gets wrong for nested lists
        async for delta in server.run(asked, visitor):
            if told.get("as_text"):
                yield json.dumps(delta, ensure_ascii=False, separators=(",", ":"))
                continue
            if apart:
                yield {"run": delta["run"], "seq": delta["seq"]}
            yield delta

    async def cancel(run: str) -> dict:
        """Cancel a run by its id."""
        return server.cancel(run)

    async def missing(run: str, seq_from: int) -> list[dict]:
        """The deltas of a run from a number on."""
        return server.missing(run, seq_from)

    async def state() -> dict:
        """Models, presets, policies, limits and recorded runs."""
        return server.state()

    def lessons(language: str) -> dict:
        """The address of the lessons in a language."""
        return server.lessons(language)

    def upload(text: str) -> dict:
        """Open a saved trace; text: its JSON lines."""
        return server.upload(text)

    def export(kind: str, run: str, step: int | None = None) -> dict:
        """A run as a file. kind: jsonl, perfetto, html or plotly (a step); run: the id or url of its replay."""
        return server.export(kind, run, step)

    def attention(run: str, step: int, pass_index: int, layer: int, head: int) -> dict:
        """The model's real attention weights in a pass of a step, one layer and head."""
        return server.attention(run, step, pass_index, layer, head)

    for endpoint in (run, cancel, missing, state, lessons, upload, export):
        gr.api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)
    gr.api(attention, api_name="attention", concurrency_limit=2)  # it computes


def _compare_api(tasks: Tasks) -> None:
    """What the Compare tab asks, as HTTP endpoints."""

    async def comparisons() -> dict:
        """Recorded comparisons, presets, policies and knobs."""
        return tasks.catalogue()

    def open_comparison(name: str) -> dict:
        """The address of a recorded comparison, `{"url"}`."""
        return tasks.open(name)

    async def task(kind: str, spec: dict, request: gr.Request) -> AsyncIterator[dict]:
        """Do a task and stream its progress. kind: compare, equivalence or fork; spec: that of a run, with what the kind needs.

        compare: "policies", "repeats". equivalence: "leak". fork: "knob", "value". A visitor has one task at a time.
        """
        asked = {k: v for k, v in spec.items() if k != "visitor"} if isinstance(spec, dict) else spec
        visitor = spec.get("visitor") if isinstance(spec, dict) else None
        async for delta in tasks.stream(kind, asked, str(visitor or request.session_hash)[:64]):
            yield delta

    async def cancel_task(task: str) -> dict:
        """Cancel a task by its id."""
        return tasks.cancel(task)

    for endpoint in (comparisons, open_comparison, task, cancel_task):
        gr.api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)


def launch(here: Limits | None = None, traces: Path = TRACES, **options) -> tuple:
    """Build the page and serve it; what `Blocks.launch` returns. options: passed on to it, e.g. `server_port`.

    Raises InflightError under torchrun.
    """
    if world_size() > 1:
        raise InflightError("The page runs in one process: start it without torchrun.")
    here = here or limits()
    folder = Path(tempfile.mkdtemp(prefix="inflight-"))

    def url(path: Path) -> str:
        return f"gradio_api/file={path}"

    server = Server(folder, url, here, traces)
    return build(server, Tasks(folder / "compare", url, here), parts_of(write_files(folder / "compare"), url)).launch(
        allowed_paths=[str(folder)],
        app_kwargs={"middleware": [Middleware(MaxBody, max_bytes=here.upload_bytes + 2**20), Middleware(PackedFront)]},
        head="".join(f'<link rel="preload" as="fetch" crossorigin="anonymous" href="{e["url"]}">' for e in server.catalogue[:1]),
        theme=gr.themes.Base(font="system-ui", font_mono="ui-monospace"),  # nothing to fetch
        footer_links=[],
        max_threads=_EVERYBODY,
        run_history=False,
        ssr_mode=False,
        **options,
    )
