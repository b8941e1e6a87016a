"""Inflight's page, `python app.py` or a Space: continuous batching on a real engine, by step."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main(arguments: list[str] | None = None, program: str = "python app.py") -> int:
    """Serve the page until it is interrupted. Gradio's environment variables are defaults."""
    parser = argparse.ArgumentParser(
        prog=program, description="Serve the page on which a run can be watched, step by step."
    )
    setting = os.environ.get
    parser.add_argument(
        "--host",
        default=setting("GRADIO_SERVER_NAME", "127.0.0.1"),
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=setting("GRADIO_SERVER_PORT", "7860"),
        help="port (default: %(default)s)",
    )
    parser.add_argument(
        "--share",
        action="store_true",
        default=None,  # as GRADIO_SHARE says
        help="also open a public address, through Gradio's tunnel",
    )
    parser.add_argument(
        "--root-path",
        default=setting("GRADIO_ROOT_PATH"),
        help="path under which a proxy serves the page",
    )
    parser.add_argument(
        "--trust-visitors",
        action="store_true",
        help="give everyone who can reach the page the limits of a page at home",
    )
    parser.add_argument(
        "--trace-host",
        dest="trace_hosts",
        action="append",
        default=setting("INFLIGHT_TRACE_HOSTS", "").split(),
        metavar="HOST",
        help="another site whose runs a link may open (#trace=URL); repeatable (default: none)",
    )
    parser.add_argument(
        "--allow-host",
        dest="allow_hosts",
        action="append",
        default=[],
        metavar="HOST",
        help=(
            "public name under which the page is reached; repeatable (default: addresses and local"
            " names alone)"
        ),
    )
    parser.add_argument(
        "--live",
        action=argparse.BooleanOptionalAction,
        default={"1": True, "0": False}.get(setting("INFLIGHT_LIVE", "")),
        help="share one engine among everyone who opens the page (default: yes, except on a Space)",
    )
    parser.add_argument(
        "--follow",
        nargs="+",
        type=Path,
        default=(),
        metavar="PLACE",
        help=(
            "show another engine on the Live tab instead, from the recordings that it writes:"
            " files, or a folder (the newest in it)"
        ),
    )
    parser.add_argument(
        "--collect",
        type=Path,
        metavar="FOLDER",
        help=(
            "take the recordings that engines send to this page, write them into a folder, and"
            " follow that"
        ),
    )
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="tokenizer for the recordings of another engine: a folder or a hub id",
    )
    parser.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="open the page with this model: built in, a folder, GGUF file or hub id",
    )
    parser.add_argument(
        "--live-model",
        default="",
        metavar="NAME",
        help="model of the shared engine (default: as --model, else smollm2 where it was fetched)",
    )
    options = parser.parse_args(arguments)
    refusal = _cannot_listen(options.host, options.port)
    if setting("INFLIGHT_LIVE", "") not in ("", "0", "1"):
        refusal = "INFLIGHT_LIVE must be 1 or 0: whether visitors share an engine."
    if refusal:
        print(refusal, file=sys.stderr)
        return 2

    from core.errors import InflightError  # after the help and the port: this loads Gradio
    from core.start import gc_frozen, own_process, return_large_blocks
    from visualizer.page.stubs import skip_stubs

    skip_stubs()
    own_process()  # until it is interrupted, it serves the page
    return_large_blocks()
    with gc_frozen():
        from visualizer.ui import launch

    try:
        launch(**vars(options), teacher_token=setting("INFLIGHT_TEACHER_TOKEN"))
    except InflightError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _cannot_listen(host: str, port: int) -> str:
    """Why the page cannot be served there, in a sentence; empty if it can."""
    if not 0 < port < 65536:
        return f"Port {port} does not exist: choose one from 1 to 65535."
    if not host:
        return "Name an address to listen on: 127.0.0.1 for this machine alone, 0.0.0.0 for all."
    from core.errors import InflightError
    from core.serving.listening import bound

    try:
        bound(host, port).close()
    except InflightError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the page is there
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
