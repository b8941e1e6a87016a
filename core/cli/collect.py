"""`collect`: takes the recordings that engines send, and writes them into a folder."""

import asyncio
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from core.cli.output import print_json, print_line, print_note
from core.recorders.collected import Collection
from core.serving.http.collect import BODY, TOKEN, collector_app, token_of
from core.serving.limits import LOOPBACK, ServingLimits
from core.serving.listening import HttpServer, allow_connections, bound, server_config

_LIMITS = ServingLimits(max_requests=64, max_viewers=0, body_s=BODY.seconds, drain_s=2)


def collect(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the recordings; made if it is not there.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets engines on other machines send.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 7861,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN,
            help="What engines must send.",
            show_default="the folder's own",
        ),
    ] = None,
    max_mb: Annotated[float, typer.Option(min=0.001, help="Size of a file, in MiB.")] = 256,
    max_gb: Annotated[
        float,
        typer.Option(min=0.001, help="Size of all, in GiB: beyond, the oldest files are deleted."),
    ] = 64,
    json: Annotated[bool, typer.Option("--json", help="Print each line as JSON.")] = False,
) -> None:
    """Collect the recordings that engines send over the network, a file for each start and rank,
    until Ctrl-C.
    """

    def tell(line: str) -> None:
        now = time.strftime("%H:%M:%S")
        say(f"{now} {line}", {"time": now, "says": line})

    def say(line: str, told: dict[str, str]) -> None:
        if json:
            print_json({"schema": "collect/1", **told})
        else:
            print_line(line)
        sys.stdout.flush()  # whoever reads a pipe is waiting for it

    with bound(host, port) as listening:
        collection = Collection(out, round(max_mb * 2**20), round(max_gb * 2**30), tell)
        secret = token_of(out, token)
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host
        named = f"[{name}]" if ":" in name else name
        address = f"http://{named}:{listening.getsockname()[1]}"
        listening.listen()  # who reads the next line may send
        trace = f"{address}/?token={secret}"
        say(
            f"Collecting into {out}. Start engines with INFLIGHT_TRACE='{trace}'",
            {"folder": str(out), "trace": trace},
        )
        print_note(f"To watch them: python app.py --follow {out}")
        if host not in LOOPBACK:
            print_note(
                "Recordings cross the network as they are: where others can read along, put a proxy"
                " with HTTPS before this."
            )
        allow_connections()
        server = HttpServer(server_config(collector_app(collection, secret, tell), _LIMITS))
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve([listening]))
