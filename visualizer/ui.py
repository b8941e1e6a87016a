"""The Gradio app: one Blocks with the player, and how it is launched.

The only module that imports Gradio here. Gradio serves the page and has no functions: the server's own addresses are beside it (`visualizer.server.routes`).
Scrubbing never involves Python: the player fetches a replay by its address and calls the server only to run, open or export.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
from gradio.context import LocalContext
from gradio.route_utils import CustomCORSMiddleware
from gradio.routes import templates
from gradio.utils import colab_check, is_hosted_notebook
from jinja2 import ChoiceLoader, DictLoader
from starlette.middleware import Middleware
from starlette.requests import Request

from core.config import BUILTIN_MODELS, DEFAULT_MODEL
from core.errors import InflightError, UnsupportedModel
from core.models.cache import ModelCache
from core.models.names import folder_fault, model_named
from core.models.tensor_parallel import world_size
from core.recorders.texts import named_tokenizer
from core.runner.threads import wait_passively
from core.serving.listening import allow_connections
from core.serving.timeouts import KEPT_S, bounded_protocol
from visualizer.documents.catalogue import TRACES
from visualizer.jobs.limits import Limits
from visualizer.page.bundle import ICON, PICTURE, head, inert_json, markup, script, style
from visualizer.page.engine_files import engine_files
from visualizer.page.tabs import options as parts_of
from visualizer.page.tabs import player_options, write_files
from visualizer.server.api import Server
from visualizer.server.collected import Collected
from visualizer.server.embed import embed_routes
from visualizer.server.engine_files import engine_routes
from visualizer.server.followed import Followed
from visualizer.server.limits import are_strangers, is_space, limits
from visualizer.server.middleware import (
    SILENT,
    PageGuard,
    address_of,
    body_guard,
    nowhere,
    origins_of,
)
from visualizer.server.response_cache import ResponseCache
from visualizer.server.routes import TAKING, routes
from visualizer.server.shared_engine import SharedEngine
from visualizer.server.store import Store, address, own_folder
from visualizer.server.story import story_routes

# Gradio's page for a shared address loads scripts from elsewhere, which our policy forbids; its page for a local address works there, too.
_ONE_PAGE = DictLoader({"frontend/share.html": '{% include "frontend/index.html" %}'})
# What the first picture is made of, on a first visit and later: fetched while Gradio's own scripts are.
_PRELOAD = '<link rel="preload" as="fetch" crossorigin="anonymous" href="{}">'
_LAST_WORDS = 1.0  # seconds for answers still being written at the end


def build(server: Server, parts: dict[str, Any], **options: Any) -> gr.Blocks:
    """The page. Watch is included from the start; each of `parts` (see assets/player/parts/tabs.js) is fetched when its tab is first opened.

    options: more options of the player.
    """
    options = {"opening": server.opening, "embed": "embed"} | options
    options |= player_options(server.catalogue, next(iter(parts.values()))["options"]["tabs"]) | {
        "server": True,
        "model": server.model_at_start,
        "plotly": parts["compare"]["options"]["plotly"],
    }
    with gr.Blocks(
        title="Inflight", fill_width=True, fill_height=True, analytics_enabled=False
    ) as page:
        gr.HTML(
            html_template=_literal(markup()),
            js_on_load=f'Inflight.mount(element.querySelector(".inflight"), {inert_json(options)});',
            head=f"<style>{style()}</style><script>{script()}</script>",
            apply_default_css=False,
            elem_id="watch",
        )
        gr.HTML(
            html_template="<div></div>",
            js_on_load=f"inflightParts(element, {json.dumps(parts)});",
            head=f"<script>{script('parts/tabs.js')}</script>",
            apply_default_css=False,
            elem_id="parts",
        )
    return page


def _literal(html: str) -> str:
    """Escape markup for Gradio's template languages, which interpret `${…}` and `{{…}}`."""
    return (
        html.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${").replace("{{", "\\{{")
    )


def launch(
    here: Limits | None = None,
    traces: Path = TRACES,
    trust_visitors: bool = False,
    trace_hosts: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
    live: bool | None = None,
    model: str = "",
    live_model: str = "",
    teacher_token: str | None = None,
    follow: Sequence[Path] = (),
    collect: Path | None = None,
    tokenizer: str | None = None,
    prevent_thread_lock: bool = False,
    **options,
) -> tuple[Any, ...]:
    """Build the page and serve it until Ctrl-C; what `Blocks.launch` returns, at once if `prevent_thread_lock`.

    trust_visitors: on a public address they get the limits of a page at home. trace_hosts: see `origins`. allow_hosts: public names under which
    the page is reached without a proxy that `root_path` or, on loopback, trust_visitors speaks of. live: whether visitors share an
    engine, running `live_model` or else `model`; by default everywhere except on a Space, where they are strangers to each other. teacher_token: generated if
    not given. follow: recordings of another engine to show instead; collect: a folder that takes what engines send, and is followed; tokenizer: of its model, if it is not where they say. options: passed on
    to `Blocks.launch`, e.g. `server_port`. model: the one that the page opens with, which visitors may then choose. Raises InflightError under torchrun, and for a model that strangers may not run.
    """
    if world_size() > 1:
        raise InflightError("The page runs in one process: start it without torchrun.")
    allow_connections()
    wait_passively()  # torch is not loaded yet: the first run loads it, or the page once it is served
    elsewhere = origins_of(trace_hosts)
    share = is_shared(options.pop("share", None))
    host = "shared" if share else options.get("server_name")
    # Where a proxy or a tunnel stands in front it has names of its own, which only it knows.
    behind = (
        is_space()
        or share
        or options.get("root_path")
        or (trust_visitors and not are_strangers(host, False))
    )
    names = None if behind else (*filter(None, [host]), *allow_hosts)
    here = here or limits(host=host, trusted=trust_visitors)
    model = checked_name(model)
    live_model = checked_name(live_model) or model or DEFAULT_MODEL
    here = replace(here, offered=tuple(dict.fromkeys((*here.offered, *filter(None, [model])))))
    try:
        store = Store(own_folder(), here.kept_bytes)
        files, picture = write_files(store.folder), store.folder / "picture.png"
        shutil.copy(PICTURE, picture)
    except OSError as error:
        raise InflightError(
            f"The page's files cannot be written: {(error.strerror or str(error)).lower()}. TMPDIR names another place."
        ) from None
    if (follow or collect) and is_space():
        raise InflightError("A Space is public: recordings of an engine cannot be followed there.")
    if live_model not in here.offered and not here.any_model:
        raise InflightError(
            f"On a public page only its own models can be shared: {', '.join(here.offered)}."
        )
    models = ModelCache()
    server = Server(store, here, traces, models, model)
    shared: SharedEngine | Followed | None = None
    if follow or collect:
        collected = Collected.into(collect) if collect else None
        places = [*follow, *([collect] if collect else ())]
        shared = Followed(
            places,
            not are_strangers(host, trust_visitors),
            named_tokenizer(tokenizer) if tokenizer else None,
            collected,
        )
    elif not is_space() if live is None else live:
        shared = SharedEngine(live_model, models, here, teacher_token)
    for path in (*files.values(), picture):
        store.pin(path)
    live_tab = shared.options if shared else None
    begins = {"opening": None} if follow or collect else {}  # its owner came to see an engine
    engine = engine_files()
    in_tab = {"engine": engine.address} if engine else {}
    parts = parts_of(files, address, live_tab, **in_tab)
    page = build(
        server, parts, traceHosts=elsewhere, uploadBytes=here.upload_bytes, **begins, **in_tab
    )
    page.space_id = (
        None  # Gradio's header for a Space opened directly loads fonts and pictures from elsewhere
    )
    templates.env.loader = ChoiceLoader([_ONE_PAGE, *filter(None, [templates.env.loader])])
    page._queue.sleep_when_free = (
        0.02  # Gradio polls its queue every millisecond, which costs a tenth of a core
    )
    firsts = [
        first["url"]
        for first in (*server.catalogue[:1], *filter(None, [begins.get("opening", server.opening)]))
    ]
    served = page.launch(
        app_kwargs={
            "middleware": [
                Middleware(PageGuard, origins=elsewhere, names=names),
                Middleware(body_guard, question=here.question_bytes, file=here.upload_bytes),
                Middleware(
                    ResponseCache,
                    is_everybodys=store.is_pinned,
                    head=lambda at: (
                        f"<title>Inflight</title>{head((of_a_space() or at) + address(picture))}"
                    ),
                ),
            ],
            "routes": [
                *routes(server, address_of(is_space()), _enter),
                *embed_routes(traces),
                *engine_routes(engine),
                *story_routes((of_a_space() or "") + address(picture)),
                *(shared.routes(address_of(is_space())) if shared else ()),
            ],
            "exception_handlers": {404: nowhere, 405: nowhere},
        },
        favicon_path=ICON,
        head="".join(map(_PRELOAD.format, firsts)),
        theme=gr.themes.Base(font="system-ui", font_mono="ui-monospace"),  # nothing to fetch
        footer_links=[],
        share=share,
        pwa=False,
        run_history=False,
        ssr_mode=False,
        prevent_thread_lock=True,
        **options,
    )
    app = served[0]
    # It lets every origin read a page that is not called localhost, and answers before our own guard is asked.
    app.user_middleware = [m for m in app.user_middleware if m.cls is not CustomCORSMiddleware]  # type: ignore[comparison-overlap]
    app.middleware_stack = app.build_middleware_stack()
    page.server.config.http_protocol_class = bounded_protocol(SILENT, TAKING)
    page.server.config.timeout_keep_alive = KEPT_S
    if isinstance(shared, Followed):
        shared.start()
    if shared is not None:
        print(shared.announce(*served[1:3], options.get("server_name")), flush=True)
    if not prevent_thread_lock:
        _serve_until_interrupted(
            server, shared if isinstance(shared, SharedEngine) else None, page.server
        )
    return served


def of_a_space() -> str:
    """The address of the page on a Space, ending in /; empty elsewhere."""
    own = os.environ.get("SPACE_HOST")
    return f"https://{own}/" if own else ""


def checked_name(name: str) -> str:
    """The name of a model as the owner of the page gives it; raises UnsupportedModel for a folder that is none."""
    name = model_named(name)
    if name and (fault := folder_fault(name)):
        raise UnsupportedModel(
            f"The model {name!r} cannot be loaded: {fault}; built in are {' and '.join(BUILTIN_MODELS)}."
        )
    return name


def is_shared(asked: bool | None) -> bool:
    """Whether the page gets a public address through Gradio's tunnel, by Gradio's own rules if not set explicitly: strangers can use it."""
    if asked is not None:
        return asked
    return (
        colab_check()
        or is_hosted_notebook()
        or os.environ.get("GRADIO_SHARE", "").lower() == "true"
    )


def _serve_until_interrupted(server: Server, shared: SharedEngine | None, listening: Any) -> None:
    """Wait for Ctrl-C or SIGTERM, then end: requests in the shared engine are finished, other engines end at their next step, the folder
    is removed, and no other thread is waited for. A second signal ends it at once."""
    interrupted = False

    def begin(*signal_: object) -> None:
        nonlocal interrupted
        interrupted = True
        heed(end)

    def end(*signal_: object) -> None:
        shutil.rmtree(server.store.folder, ignore_errors=True)
        with suppress(RuntimeError, OSError):  # the signal may have come in the middle of a line
            sys.stdout.flush()
        os._exit(0)  # a thread inside torch would abort an interpreter that is shutting down

    def heed(order: Callable[..., None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, order)

    heed(begin)
    while (
        not interrupted
    ):  # no lock is waited for, which the code that a signal interrupts could hold
        time.sleep(0.2)
    if shared is not None:
        shared.close()
    server.jobs.stop(seconds=0.5)
    listening.should_exit = True  # answers being written are completed
    listening.thread.join(_LAST_WORDS)
    end()


def _enter(request: Request) -> None:
    """Set the request as Gradio does for its own events: ZeroGPU reads it to find whose quota to use."""
    LocalContext.request.set(gr.Request(request))
