"""Sends a recording over HTTP to a collector: `python -m inflight collect`, or Inflight's page. It
does not depend on the engine.

    POST ADDRESS          Authorization: Bearer TOKEN     Inflight-First: the number of the first
                          line
    the header, then lines                     ─→         200, {"wants_snapshot": whether a snapshot
                                               should follow soon}

Every batch carries the header, so that a restarted collector knows which recording it belongs to;
the collector skips lines that it already has. If the collector cannot be reached, the batch is sent
again at growing intervals; if it refuses, the recording ends.
"""

import http.client
import json
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from .writer import Oversized, log

BATCH = 2**20  # bytes after which a batch is sent
MOST_BODY = 32 * 2**20  # bytes that a collector takes at once
# seconds without lines after which an empty batch shows that the engine is alive
HEARTBEAT = 10.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 507})  # statuses that may be temporary
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0  # seconds between two attempts
_TIMEOUT = 10.0  # seconds
_MOST_ANSWER = 2**16  # bytes


class NotTaken(Exception):
    """The collector refuses a batch and would refuse it again."""


class Sender:
    """A sink of `RawWriter`. url: may have the token as `?token=…`, which is sent as a header of
    each call and never logged. Raises ValueError for an invalid address or token.
    """

    period = 0.25
    idle = HEARTBEAT

    def __init__(self, url: str, header: dict[str, Any]) -> None:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
        token = dict(query).get("token", "")
        if not parts.hostname or not (token.isascii() and token.isprintable()):
            raise ValueError("INFLIGHT_TRACE names no host, or a token that no header can carry")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
        others = urlencode([pair for pair in query if pair[0] != "token"])
        self._path = (parts.path or "/") + (f"?{others}" if others else "")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._headers = {"Content-Type": "application/x-ndjson"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        self._header = (json.dumps(header, separators=(",", ":")) + "\n").encode()
        self._lines: list[bytes] = []
        self._size, self._sent, self._at = 0, 0, 0.0
        self._connection: http.client.HTTPConnection | None = None
        self._closing = threading.Event()

    def open(self, closing: threading.Event) -> None:
        """Connects later. closing: is set at shutdown, when one more attempt is made."""
        self._closing = closing

    def write(self, line: str) -> bool:
        """Take a line, and send the batch once it is large enough; returns whether a snapshot is
        wanted. Raises Oversized for a line that fits into no message.
        """
        if len(line) + len(self._header) > MOST_BODY:
            raise Oversized
        wants_snapshot = self._size + len(line) + len(self._header) > MOST_BODY and self._send()
        self._lines.append(line.encode())
        self._size += len(line)
        return (self._size >= BATCH and self._send()) or wants_snapshot

    def flush(self) -> bool:
        """Send the batch, or an empty one as a heartbeat; returns whether a snapshot is wanted."""
        return bool(self._lines or time.monotonic() - self._at >= HEARTBEAT) and self._send()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self) -> bool:
        """Send the batch. Raises NotTaken, and ConnectionError at shutdown."""
        body, wait, is_out = self._header + b"".join(self._lines), _FIRST_WAIT, False
        while True:
            try:
                wants_snapshot = self._post(body)
                break
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
            if self._closing.is_set():
                raise ConnectionError(problem)
            if not is_out:
                log.warning(
                    "Inflight cannot send to %s: %s. It tries again; steps that find no room"
                    " meanwhile are dropped.",
                    self.name,
                    problem,
                )
            is_out = True
            self._closing.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        if is_out:
            log.info("Inflight sends to %s again.", self.name)
        self._sent += len(self._lines)
        self._lines, self._size, self._at = [], 0, time.monotonic()
        return wants_snapshot

    def _post(self, body: bytes) -> bool:
        """Send a body; try again if the other side has closed the kept connection."""
        headers = {**self._headers, "Inflight-First": str(self._sent)}
        for is_kept in (True, False) if self._connection is not None else (False,):
            try:
                if self._connection is None:
                    kind = (
                        http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
                    )
                    self._connection = kind(self._host, self._port, timeout=_TIMEOUT)
                self._connection.request("POST", self._path, body, headers)
                answer = self._connection.getresponse()
                data = answer.read(_MOST_ANSWER)
                # the collector was killed while it answered
                if answer.length and len(data) < _MOST_ANSWER:
                    raise http.client.IncompleteRead(data, answer.length)
                break
            except (OSError, http.client.HTTPException):
                self.close()
                if not is_kept:
                    raise
        said = ""
        with suppress(ValueError, AttributeError):
            content = json.loads(data)
            said = str(content.get("error", ""))
            if answer.status == 200:
                return bool(content["wants_snapshot"])
        self.close()
        problem = f"it answers {answer.status} {answer.reason}" + (
            f" ({said[:200]})" if said else ""
        )
        if answer.status in _AGAIN:
            raise ConnectionError(problem)
        raise NotTaken(problem)
