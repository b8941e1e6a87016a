"""A reader, run as a program, that computes until it is ended: a second of CPU is all that it is
given. Before that it prepares as much as the file says: so many GiB of memory.
"""

import mmap

from visualizer.server.uploads import answer


def read(text: str) -> dict[str, object]:
    while True:
        pass


def prepare(text: str) -> object:
    try:
        return mmap.mmap(-1, int(text) << 30)
    except OSError:
        raise MemoryError from None


if __name__ == "__main__":
    answer(read, prepare, seconds=1)
