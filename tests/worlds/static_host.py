"""A web server of files, as plain or as bad as one wishes: a path before everything, other content
types, little bandwidth, answers that break off.
"""

from __future__ import annotations

import mimetypes
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Host:
    """What a server does, which may be changed while it serves."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.url = ""
        self._wire = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Serve as at first."""
        self.kinds: dict[str, str] = {}  # ".wasm" to the content type that is sent for it
        # ".gz", where a host says of such files that they are packed on the way
        self.packed: set[str] = set()
        self.pace: float | None = None  # bytes a second, for all answers together
        # the end of a path to the number of bytes after which its answer breaks off; -1: 404
        self.broken: dict[str, int] = {}
        self.held: set[str] = set()  # ends of paths that are answered once they are taken out
        self.headers: dict[str, str] = {}  # sent with everything
        self.ranges = True  # whether it sends the rest of a file to who has its beginning
        self.asked: list[str] = []
        self.sent = 0

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(to.path).path)
        self.asked.append(path)
        while any(path.endswith(end) for end in self.held):
            time.sleep(0.02)
        name = path.removeprefix(self.prefix).lstrip("/")
        file = self.folder / (name + "index.html" if name.endswith("/") or not name else name)
        stops = next((at for end, at in self.broken.items() if path.endswith(end)), None)
        if not path.startswith(self.prefix) or not file.is_file() or stops == -1:
            to.send_error(404)
            return
        data = file.read_bytes()
        kind = (
            self.kinds.get(file.suffix)
            or mimetypes.guess_type(file.name)[0]
            or "application/octet-stream"
        )
        start = re.fullmatch(r"bytes=(\d+)-", to.headers.get("Range", "")) if self.ranges else None
        begin, whole = int(start[1]) if start else 0, len(data)
        data = data[begin:stops]
        to.send_response(206 if start else 200)
        if start:
            to.send_header("Content-Range", f"bytes {begin}-{whole - 1}/{whole}")
        to.send_header("Content-Type", kind)
        for header, value in self.headers.items():
            to.send_header(header, value)
        if file.suffix in self.packed:
            to.send_header("Content-Encoding", "gzip")
        to.send_header("Content-Length", str(whole - begin))
        to.end_headers()
        for at in range(0, len(data), 16384):
            piece = data[at : at + 16384]
            if self.pace:
                with self._wire:
                    time.sleep(len(piece) / self.pace)
            to.wfile.write(piece)
            self.sent += len(piece)
        to.close_connection = stops is not None


@contextmanager
def hosted(folder: Path, prefix: str = "") -> Iterator[Host]:
    """The files of a folder at `host.url`. Nothing is compressed, and nothing but a content type is
    said of a file.
    """
    host = Host(folder, prefix)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                host.answer(self)
            except ConnectionError:  # the visitor has gone
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    host.url = f"http://127.0.0.1:{server.server_port}{prefix}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield host
    finally:
        host.held.clear()
        server.shutdown()
        server.server_close()
