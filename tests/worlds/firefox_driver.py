#!/usr/bin/env python3
"""Starts the installed Firefox for Playwright, which speaks WebDriver BiDi with it and expects
commands that an ESR does not have yet.

Playwright runs this file in Firefox's place (`channel="moz-firefox"`) and reads where to connect
from its output. What it says passes through here: a command that the page of a test can do without,
and Firefox does not know, is asked as `session.status`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import struct
import sys

DISPENSABLE = {"emulation.setMediaFeaturesOverride", "emulation.setScreenSettingsOverride"}


def executable() -> str | None:
    """The Firefox to be tested with; None where there is none."""
    return os.environ.get("FIREFOX") or next(
        filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None
    )


def _masked(data: bytes, mask: bytes) -> bytes:
    length, pattern = len(data), mask * (len(data) // 4 + 1)
    return (int.from_bytes(data, "big") ^ int.from_bytes(pattern[:length], "big")).to_bytes(
        length, "big"
    )


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A frame of a WebSocket's client: its first byte, and what it says."""
    first, length = await reader.readexactly(2)
    length &= 127
    if length > 125:
        wide = length == 127
        (length,) = struct.unpack(
            "!Q" if wide else "!H", await reader.readexactly(8 if wide else 2)
        )
    mask = await reader.readexactly(4)
    return first, _masked(await reader.readexactly(length), mask)


def _framed(first: int, said: bytes) -> bytes:
    length, mask = len(said), b"mask"
    size = (
        struct.pack("!B", 128 | length)
        if length < 126
        else struct.pack("!BH", 254, length)
        if length < 65536
        else struct.pack("!BQ", 255, length)
    )
    return bytes([first]) + size + mask + _masked(said, mask)


def _known(said: bytes) -> bytes:
    command = json.loads(said)
    return (
        json.dumps({**command, "method": "session.status", "params": {}}).encode()
        if command["method"] in DISPENSABLE
        else said
    )


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _connected(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A client's connection: Firefox's answers as they are, its own commands one by one."""
    answers, firefox = await asyncio.open_connection("127.0.0.1", port)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    head = re.sub(r"(?im)^Sec-WebSocket-Extensions:.*\r\n", "", head)  # nothing packed
    firefox.write(re.sub(r"(?im)^Host:.*$", f"Host: 127.0.0.1:{port}\r", head).encode())
    back = asyncio.create_task(_pipe(answers, writer))
    try:
        while True:
            first, said = await _frame(reader)
            # 0x81: a whole text
            firefox.write(_framed(first, _known(said) if first == 0x81 else said))
            await firefox.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        firefox.close()
        await back


async def main() -> int:
    firefox = await asyncio.create_subprocess_exec(
        executable() or "firefox", *sys.argv[1:], stderr=asyncio.subprocess.PIPE
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, firefox.terminate)
    assert firefox.stderr
    async for line in firefox.stderr:
        text = line.decode(errors="replace")
        if found := re.search(r"WebDriver BiDi listening on ws://[^:]+:(\d+)", text):
            port = int(found[1])
            server = await asyncio.start_server(
                lambda r, w, port=port: _connected(port, r, w), "127.0.0.1", 0, limit=1 << 26
            )
            text = (
                f"WebDriver BiDi listening on ws://127.0.0.1:{server.sockets[0].getsockname()[1]}\n"
            )
        print(text, end="", file=sys.stderr, flush=True)
    return await firefox.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
