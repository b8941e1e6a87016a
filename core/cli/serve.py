"""`serve`: the engine behind HTTP, without the page."""

import logging
import os
import secrets
from typing import Annotated, Any

import typer

from core.cli.given import refuse_idle
from core.cli.options import (
    POLICY,
    DeviceOptions,
    check_policy,
    engine_for,
    refuse_idle_limits,
    with_options,
)
from core.cli.output import print_note
from core.config import DEFAULT_MODEL, EngineConfig, Execution
from core.torch_engine.cpu.threads import wait_passively

_KEY = "INFLIGHT_API_KEY"
LANES = 16  # more than in a run made to be looked at


@with_options
def serve(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="The one model served: built in, folder, GGUF file or hub id."
        ),
    ] = DEFAULT_MODEL,
    policy: Annotated[str, typer.Option(help=POLICY)] = "continuous",
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 makes the server reachable from the network."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar=_KEY, help="Bearer token that clients must send.", show_default=False),
    ] = None,
    teacher: Annotated[
        bool,
        typer.Option(
            "--teacher",
            help=(
                "Print a token for /control: pace, single steps, policy, limits, bursts, clearing."
            ),
        ),
    ] = False,
    show_texts: Annotated[
        bool,
        typer.Option(
            "--show-texts", help="Expose prompts, tokens and nicknames to viewers of /events."
        ),
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin of a page that may call from a browser; repeatable.", show_default=False
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Public name under which a server without a key is reached; repeatable.",
            show_default=False,
        ),
    ] = None,
    max_requests: Annotated[
        int, typer.Option(min=1, help="Most requests in progress at once, waiting ones included.")
    ] = 1024,
    max_requests_per_client: Annotated[
        int, typer.Option(min=1, help="The same, per client address.")
    ] = 1024,
    max_prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Most prompt tokens of a request.")
    ] = 16_384,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Most new tokens of a request.")
    ] = 4096,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="Seconds that requests in progress get to finish on shutdown."),
    ] = 30,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
    execution: dict[str, Any],
) -> None:
    """Serve a model over HTTP: /generate, OpenAI's /v1, /health, /metrics and live /events; /docs
    describes them.

    Listens on loopback by default. SIGTERM or Ctrl-C lets requests in progress finish.
    """
    wait_passively()  # before torch is loaded
    from core.serving.engine import ServingEngine
    from core.serving.event_log import Hidden
    from core.serving.http.app import create_app
    from core.serving.http.guard import sendable
    from core.serving.http.sites import origin_named
    from core.serving.limits import LOOPBACK, ServingLimits
    from core.serving.server import serve as listen

    check_policy(policy)
    origins = tuple(map(origin_named, cors_origin or ()))
    if api_key is None:
        api_key = os.environ.get(_KEY)  # empty: to the command line it is as if it were not set
    if api_key is not None:
        sendable(api_key, "The API key")
        refuse_idle("with --api-key, by which clients are known", "allow_host")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    config = EngineConfig(**{"policy": policy, "max_num_seqs": LANES, **limits})
    if not teacher:  # who may choose another policy
        refuse_idle_limits(config)
    engine = engine_for(model, config, device_options, Execution(**execution))
    serving = ServingEngine(
        engine,
        ServingLimits(
            max_requests=max_requests,
            max_requests_per_client=max_requests_per_client,
            max_prompt_tokens=max_prompt_tokens,
            max_new_tokens=max_new_tokens,
            drain_s=drain_seconds,
        ),
        model,
        Hidden(texts=not show_texts, nicknames=not show_texts),
    )
    if host not in LOOPBACK and api_key is None:
        print_note(
            f"Anyone who can reach {host} can use this server: give --api-key to require a key."
        )
    token = secrets.token_urlsafe(16) if teacher else None
    if token is not None:
        print_note(f"The teacher's token, for the header X-Teacher-Token of /control: {token}")
    app = create_app(
        serving,
        api_key=api_key,
        teacher_token=token,
        cors_origins=origins,
        names=None if api_key else (host, *(allow_host or ())),
    )
    listen(
        serving,
        app,
        host,
        port,
        lambda address: print_note(f"Serving {model} at {address} ({address}/docs)."),
    )
