"""Clients that write to a server's socket themselves, as no library would."""

from __future__ import annotations

import socket
from typing import Protocol


class AtPort(Protocol):
    @property
    def port(self) -> int: ...


def connected(server: AtPort, data: bytes, by: str = "127.0.0.1") -> socket.socket:
    """by: the client's address; all that begin with 127 are this machine's."""
    made = socket.create_connection(("127.0.0.1", server.port), timeout=120, source_address=(by, 0))
    made.sendall(data)
    return made


def call(body: bytes, *headers: str, path: str = "/generate") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def status(made: socket.socket) -> int:
    return int(made.recv(4096).split(b" ")[1])
