"""The Gradio app: one Blocks with the player, mounted on an application of our own, and its server.

This is the only module that imports Gradio. Gradio serves the page but has no functions: the routes
of the server are separate (`visualizer.server.routes`). Moving through a run involves no Python:
the player fetches a replay and calls the server only to run, open or export.
"""

import json
import os
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
import uvicorn
from fastapi import FastAPI
from gradio import networking
from gradio.context import LocalContext
from gradio.utils import colab_check, is_hosted_notebook
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from core.config import BUILTIN_MODELS, DEFAULT_MODEL, SMOLLM2
from core.errors import InflightError, UnsupportedModel
from core.recorders.texts import named_tokenizer
from core.serving.limits import ServingLimits
from core.serving.listening import HttpServer, allow_connections, bound, server_config
from core.torch_engine.cpu.threads import wait_passively
from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.names import folder_fault, model_named
from core.torch_engine.models.tensor_parallel import world_size
from visualizer.documents.catalogue import TRACES
from visualizer.jobs.limits import Limits
from visualizer.page.bundle import ICON, PICTURE, head, inert_json, markup, script, style
from visualizer.page.engine_files import engine_files
from visualizer.page.tabs import options as parts_of
from visualizer.page.tabs import player_options, write_files
from visualizer.server.api import Server
from visualizer.server.followed import Collected, Followed
from visualizer.server.lent_gpu import report_start
from visualizer.server.limits import are_strangers, is_space, limits, names_of
from visualizer.server.middleware import (
    SILENT,
    SafeAnswers,
    address_of,
    nowhere,
    origins_of,
    page_guard,
)
from visualizer.server.pages import embed_routes, engine_routes, story_routes
from visualizer.server.response_cache import ResponseCache
from visualizer.server.routes import TAKING, routes
from visualizer.server.shared_engine import SharedEngine
from visualizer.server.store import Store, address, own_folder

# the data of the first picture is fetched in parallel to Gradio's own scripts
_PRELOAD = '<link rel="preload" as="fetch" crossorigin="anonymous" href="{}">'
_LAST_WORDS = 1.0  # seconds for answers still being written at the end


def build(server: Server, parts: dict[str, Any], **options: Any) -> gr.Blocks:
    """The page: Watch, and each of `parts` (see assets/player/parts/tabs.js), which is fetched when
    its tab is first opened. options: further options of the player.
    """
    options = {"opening": server.opening, "embed": "embed"} | options
    options |= player_options(server.catalogue, next(iter(parts.values()))["options"]["tabs"]) | {
        "server": True,
        "model": server.model_at_start,
        "plotly": parts["compare"]["options"]["plotly"],
    }
    mount = f'Inflight.mount(element.querySelector(".inflight"), {inert_json(options)});'
    with gr.Blocks(
        title="Inflight", fill_width=True, fill_height=True, analytics_enabled=False
    ) as page:
        gr.HTML(
            markup(),
            js_on_load=mount,
            head=f"<style>{style()}</style><script>{script()}</script>",
            apply_default_css=False,
            elem_id="watch",
        )
        gr.HTML(
            "<div></div>",
            js_on_load=f"inflightParts(element, {json.dumps(parts)});",
            head=f"<script>{script('parts/tabs.js')}</script>",
            apply_default_css=False,
            elem_id="parts",
        )
    # Gradio's header for a Space opened directly loads fonts and pictures from elsewhere
    page.space_id = None
    return page


def launch(
    here: Limits | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    share: bool | None = None,
    root_path: str | None = None,
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
) -> None:
    """Build the page and serve it until Ctrl-C.

    share: whether Gradio's tunnel gives the page a public address, see `is_shared`. root_path: the
    path under which a proxy serves it. trust_visitors: visitors of a public address get the limits
    of a page at home. trace_hosts: see `origins_of`. allow_hosts: public host names of the page
    without a proxy for which `root_path` or, on loopback, trust_visitors is set. live: whether
    visitors share an engine, with `live_model` or else `model`; by default everywhere except on a
    Space, where visitors do not know each other. teacher_token: generated if not given. follow:
    recordings of another engine to show instead; collect: a folder for steps that engines send,
    which is followed; tokenizer: for recordings that are followed or opened, if that of their model
    is not found. model: selected at first, and offered to visitors. Raises InflightError under
    torchrun, and for a model that strangers may not run.
    """
    if world_size() > 1:
        raise InflightError("The page runs in one process: start it without torchrun.")
    allow_connections()
    # before torch is loaded, which happens in the first run or once the page is served
    wait_passively()
    share = is_shared(share)
    reached = "shared" if share else host
    strangers = are_strangers(reached, trust_visitors)
    origins = origins_of(trace_hosts)
    if is_space():
        _bring_what_a_space_shows()
    names = names_of(host, allow_hosts, is_space() or share or root_path, trust_visitors)
    here = here or limits(host=reached, trusted=trust_visitors)
    model = checked_name(model)
    here = replace(
        here,
        offered=tuple(dict.fromkeys((*here.offered, *filter(None, [model])))),
        tokenizer=tokenizer or "",
    )
    answers = SMOLLM2 if SMOLLM2 in here.offered else DEFAULT_MODEL
    live_model = _shareable(checked_name(live_model) or model or answers, here)
    if (follow or collect) and is_space():
        raise InflightError("A Space is public: recordings of an engine cannot be followed there.")
    store, files = _store_with_the_pages_files(here)
    models = ModelCache()
    server = Server(store, here, TRACES, models, model)
    shared: SharedEngine | Followed | None = None
    if follow or collect:
        shared = Followed(
            [*follow, *([collect] if collect else ())],
            not strangers,
            named_tokenizer(tokenizer) if tokenizer else None,
            Collected.into(collect) if collect else None,
        )
    elif not is_space() if live is None else live:
        shared = SharedEngine(live_model, models, here, teacher_token)
    app = application(server, here, shared, files, origins, names, root_path)
    report_start()
    listening = _served(app, host, port)
    local = f"http://{'localhost' if host == '0.0.0.0' else _named(host)}:{port}/"
    print(f"* Running on local URL:  http://{_named(host)}:{port}", flush=True)
    public = _tunnel(host, port) if share and not is_space() else None
    if isinstance(shared, Followed):
        shared.start()
    if shared is not None:
        print(shared.announce(local, public, host), flush=True)
    _serve_until_interrupted(
        server, shared if isinstance(shared, SharedEngine) else None, *listening
    )


def application(
    server: Server,
    here: Limits,
    shared: SharedEngine | Followed | None,
    files: dict[str, Path],
    origins: Sequence[str],
    names: Sequence[str] | None,
    root_path: str | None = None,
) -> FastAPI:
    """The page, mounted beside the routes of the server. files: of the parts of the page, and the
    picture for previews of links. origins: see `SafeAnswers`. names: see `page_guard`. The lifespan
    is never started, since that of Gradio starts its queue, which would poll every millisecond.
    """
    engine = engine_files()
    in_tab, picture = engine.options if engine else {}, address(files["picture"])
    # the owner of a followed engine wants to see that engine first
    opening = None if isinstance(shared, Followed) else server.opening
    page = build(
        server,
        parts_of(files, address, shared.options if shared else None, in_tab),
        traceHosts=origins,
        uploadBytes=here.upload_bytes,
        opening=opening,
        **in_tab,
    )
    elsewhere: dict[Any, Any] = dict.fromkeys((403, 404, 405), nowhere)
    app = FastAPI(
        root_path=root_path or "",
        exception_handlers=elsewhere,
        openapi_url=None,
        routes=[
            *routes(server, address_of(is_space()), _enter),
            *embed_routes(TRACES),
            *engine_routes(engine),
            *story_routes(of_a_space() + picture),
            *(shared.routes(address_of(is_space())) if shared else ()),
        ],
        middleware=[
            Middleware(SafeAnswers, origins=origins),
            Middleware(
                page_guard, names=names, question=here.question_bytes, file=here.upload_bytes
            ),
            Middleware(CORSMiddleware),  # no other site may read; Gradio adds no rules then
            Middleware(
                ResponseCache,
                is_everybodys=server.store.is_pinned,
                head=lambda at: f"<title>Inflight</title>{head((of_a_space() or at) + picture)}",
            ),
        ],
    )
    firsts = [first["url"] for first in (*server.catalogue[:1], *filter(None, [opening]))]
    return gr.mount_gradio_app(
        app,
        page,
        path="/",
        app_kwargs={"exception_handlers": elsewhere},
        root_path=root_path,
        favicon_path=str(ICON),
        head="".join(map(_PRELOAD.format, firsts)),
        theme=gr.themes.Base(font="system-ui", font_mono="ui-monospace"),  # nothing to fetch
        footer_links=[],
        pwa=False,
        run_history=False,
        ssr_mode=False,
    )


def of_a_space() -> str:
    """The address of the page on a Space, ending in /; empty elsewhere."""
    own = os.environ.get("SPACE_HOST")
    return f"https://{own}/" if own else ""


def checked_name(name: str) -> str:
    """The name of a model as given by the owner; raises UnsupportedModel if it names no model."""
    name = model_named(name)
    if name and (fault := folder_fault(name)):
        raise UnsupportedModel(
            f"The model {name!r} cannot be loaded: {fault}; built in are"
            f" {' and '.join(BUILTIN_MODELS)}."
        )
    return name


def _bring_what_a_space_shows() -> None:
    """Download SmolLM2, which the first run on a Space needs, and Pyodide, which Write needs."""
    from core.browser.pyodide import fetch_pyodide
    from core.torch_engine.models.smollm2 import fetch  # imports transformers

    for bring in (fetch, fetch_pyodide):
        try:
            bring()
        except InflightError as error:
            print(error, flush=True)


def _shareable(model: str, here: Limits) -> str:
    """The model of the shared engine; raises InflightError for one that strangers may not run."""
    if model not in here.offered and not here.any_model:
        raise InflightError(
            f"On a public page only its own models can be shared: {', '.join(here.offered)}."
        )
    return model


def is_shared(asked: bool | None) -> bool:
    """Whether Gradio's tunnel gives the page a public address, by Gradio's rules unless asked."""
    if asked is not None:
        return asked
    return (
        colab_check()
        or is_hosted_notebook()
        or os.environ.get("GRADIO_SHARE", "").lower() == "true"
    )


def _store_with_the_pages_files(here: Limits) -> tuple[Store, dict[str, Path]]:
    """A new store, and in it the files of the page's parts and the picture for previews."""
    try:
        store = Store(own_folder(), here.kept_bytes)
        files = write_files(store.folder) | {"picture": store.folder / "picture.png"}
        shutil.copy(PICTURE, files["picture"])
    except OSError as error:
        raise InflightError(
            f"The page's files cannot be written: {(error.strerror or str(error)).lower()}. TMPDIR"
            " names another place."
        ) from None
    for path in files.values():
        store.pin(path)
    return store, files


# -- serving ---------------------------------------------------------------------------------------


def _named(host: str) -> str:
    """A host in the form for an address."""
    return f"[{host}]" if ":" in host else host


def _served(app: FastAPI, host: str, port: int) -> tuple[uvicorn.Server, threading.Thread]:
    """The server, which takes calls now, and its thread; raises InflightError if it cannot."""
    bounds = ServingLimits(body_s=SILENT, send_s=TAKING, drain_s=_LAST_WORDS)
    # a proxy on this machine names the client, as uvicorn understands it by default
    server = HttpServer(server_config(app, bounds, proxy_headers=True))
    thread = threading.Thread(target=server.run, args=([bound(host, port)],), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise InflightError("The page's server did not start.")
        time.sleep(0.001)
    return server, thread


def _tunnel(host: str, port: int) -> str | None:
    """The public address of Gradio's tunnel, which is printed; None without one."""
    try:
        public = networking.setup_tunnel(
            local_host=host,
            local_port=port,
            share_token=secrets.token_urlsafe(32),
            share_server_address=None,
            share_server_tls_certificate=None,
        )
    except Exception as error:  # no network or no tunnel program: the page works without
        print(f"No public address could be had through Gradio's tunnel: {error}", flush=True)
        return None
    print(f"* Running on public URL: {public}", flush=True)
    return public


def _serve_until_interrupted(
    server: Server, shared: SharedEngine | None, listening: uvicorn.Server, thread: threading.Thread
) -> None:
    """Wait for Ctrl-C or SIGTERM, then end: requests in the shared engine are finished, other
    engines end at their next step, the folder is removed, and no other thread is waited for. A
    second signal ends at once. If the server's thread has ended because of a bug, so does this
    process, with a sentence and status 1.
    """
    interrupted = False

    def begin(*signal_: object) -> None:
        nonlocal interrupted
        interrupted = True
        heed(end)

    def end(*signal_: object) -> None:
        shutil.rmtree(server.store.folder, ignore_errors=True)
        with suppress(RuntimeError, OSError):  # the signal may have come in the middle of a line
            sys.stdout.flush()
        # a thread inside torch would abort an interpreter that is shutting down
        os._exit(0 if interrupted else 1)

    def heed(order: Callable[..., None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, order)

    heed(begin)
    # do not wait for a lock, which the code that a signal interrupts could hold
    while thread.is_alive() and not interrupted:
        time.sleep(0.2)
    if not interrupted:
        print("The page's server has ended because of a bug: start it again.", file=sys.stderr)
    if shared is not None:
        shared.close()
    server.jobs.stop(seconds=0.5)
    listening.should_exit = True  # answers being written are completed
    thread.join(_LAST_WORDS)
    end()


def _enter(request: Request) -> None:
    """Set the request as Gradio does for its events: ZeroGPU reads from it whose quota to use."""
    LocalContext.request.set(gr.Request(request))
