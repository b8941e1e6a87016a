"""The page's own folder: made when the page starts, removed when it ends. Folders of pages that were killed are removed at the next start."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"inflight-(\d+)-\w+")


def own_folder(within: Path | None = None) -> Path:
    """A new folder that is removed when this process ends. within: where; the system's temporary folder by default."""
    within = within or Path(tempfile.gettempdir())
    for left in within.iterdir():
        named = _NAME.fullmatch(left.name)
        if named and not _is_alive(int(named[1])):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"inflight-{os.getpid()}-", dir=within))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
