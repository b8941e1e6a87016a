"""An engine's recording as it grows: a process of its own writes a recorded one again, line by
line, at a pace of its own.

python -m worlds.recording_writer SOURCE.raw.jsonl.gz TARGET.raw.jsonl SECONDS_A_LINE
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def writing(source: Path, target: Path, seconds: float = 0.02) -> Iterator[None]:
    """Until the block is left, or all of it is written."""
    command = [sys.executable, "-m", __name__, str(source), str(target), str(seconds)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as process:
        try:
            yield
        finally:
            process.kill()


def main(source: str, target: str, seconds: str) -> None:
    header, *records = gzip.decompress(Path(source).read_bytes()).splitlines()
    with open(target, "w", encoding="utf-8") as file:
        # started again it is another one
        file.write(json.dumps({**json.loads(header), "created": f"{time.time()}"}) + "\n")
        for record in records:
            file.write(record.decode()[: len(record) // 2])
            file.flush()
            time.sleep(float(seconds))
            file.write(record.decode()[len(record) // 2 :] + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
