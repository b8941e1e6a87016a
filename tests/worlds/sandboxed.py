"""The sandbox in a real browser beside a server that hears whatever reaches it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from core.config import ASSETS

ENGINE = ASSETS / "engine"
_POLICY = '<meta http-equiv="Content-Security-Policy" content="${CSP}">'


class Listener:
    """A server of its own origin that welcomes every request from everywhere. `heard`: the paths
    that reached it.
    """

    url: str

    def __init__(self) -> None:
        self.heard: list[str] = []


@contextmanager
def listening(files: Mapping[str, bytes] = {}) -> Iterator[Listener]:
    """files: what is answered by path; every other path is an empty script that any origin may
    read.
    """
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].lstrip("/")
            listener.heard.append(path)
            body = files.get(path, b"")
            kind = (
                "text/html"
                if path.endswith("html")
                else "application/wasm"
                if path.endswith("wasm")
                else "text/javascript"
            )
            self.send_response(200)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Access-Control-Allow-Origin", "*"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    listener.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def page_files(**files: Any) -> dict[str, bytes]:
    """A page with the sandbox, and the sandbox without its policy: a control."""
    source = (ENGINE / "sandbox.js").read_text(encoding="utf-8")
    assert _POLICY in source
    return {
        "index.html": b"<!doctype html><title>page</title><link rel=icon href=data:,>",
        "sandbox.js": source.encode(),
        "open.js": source.replace(_POLICY, "").encode(),
        **{name: (ENGINE / name).read_bytes() for name in ("loading.js", "download.js")},
        **files,
    }
