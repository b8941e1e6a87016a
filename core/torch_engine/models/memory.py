"""How much memory is free where a model would be loaded. Does not import torch by itself."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None if that cannot be determined."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(found) if found else None


def _of_machine() -> int | None:
    """What Linux counts as available, file caches included."""
    with suppress(OSError):
        if found := re.search(
            rb"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_bytes(), re.MULTILINE
        ):
            return int(found[1]) * 1024
    return None


def _of_container() -> int | None:
    """What a container may still take: its limit is not in /proc/meminfo."""
    with suppress(OSError, ValueError):
        most = (_CGROUP / "memory.max").read_text().strip()
        if most != "max":
            used = int((_CGROUP / "memory.current").read_text())
            files = re.search(
                r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(), re.MULTILINE
            )
            return max(0, int(most) - used + (int(files[1]) if files else 0))
    return None
