"""A proxy that serves a page under a path of its own, which it takes off before it asks on."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@contextmanager
def proxied(url: str, prefix: str) -> Iterator[str]:
    """The address of the page at `url` behind a proxy that has it at `prefix`, e.g. "/lab"."""
    behind = urlsplit(url).netloc

    class Proxy(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            asked = http.client.HTTPConnection(behind, timeout=120)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.request(
                self.command,
                self.path.removeprefix(prefix),
                body,
                dict(self.headers) | {"X-Forwarded-Proto": "http"},
            )
            with asked.getresponse() as answer:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "server", "date"):
                        self.send_header(name, value)
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()

        do_GET = do_HEAD = do_POST = _pass_on

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
