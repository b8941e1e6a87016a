"""A reader, run as a program, that computes until it is ended: a second of CPU is all that it is
given.
"""

from visualizer.server.uploads import answer


def read(text: str) -> dict[str, object]:
    while True:
        pass


if __name__ == "__main__":
    answer(read, seconds=1)
