"""Opens workloads that real services published: as requests for the editor, scaled to the model and the page, with sentences about the scaling.
Files are read in a process of their own (see `apart`): this module as a program, with the limits as arguments.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from core.config import BUILTIN_MODELS
from core.errors import InflightError
from visualizer.server.limits import Limits, Refused, check_upload
from visualizer.server.sandbox import answer, read_sandboxed

REQUESTS = 24  # of a file, its first: as many as one can follow by eye
SECONDS = 20.0  # within which they arrive; a longer time on record is run through faster


def open_dataset(data: bytes, name: str, model: str, limits: Limits) -> dict[str, Any]:
    """`{"workload", "block_size", "says"}` of a file; raises InflightError with why it cannot be opened.

    name: the file's, for sentences. model: whose vocabulary and context the requests must fit. block_size: of prefixes that are shared, else None.
    """
    if model not in BUILTIN_MODELS and not limits.any_model:
        raise Refused("This page runs the built-in models alone: choose one of them first.")
    check_upload(len(data), limits)
    asked = {
        "name": name[:80] or "This file",
        "model": model,
        "requests": min(REQUESTS, limits.requests),
        "output": limits.new_tokens,
        "total": min(limits.total_tokens, limits.total_characters),
        "block": limits.block_size,
    }
    return read_sandboxed(__name__, data, json.dumps(asked))


def main() -> None:
    """The reader: see above."""
    from core.models.sizes import MOST_CONTEXT, sizes_of
    from core.workload.datasets import dataset_of

    asked = json.loads(sys.argv[1])
    try:
        sizes = sizes_of(asked["model"])
    except InflightError as error:
        print(json.dumps({"error": str(error)}))
        return

    def read(text: str) -> dict[str, Any]:
        found = dataset_of(io.StringIO(text.removeprefix("\ufeff")), asked["name"], sizes.count, asked["requests"])
        found = found.within(sizes.context or MOST_CONTEXT, asked["output"], asked["total"], asked["block"])
        speed = max(1.0, found.span / SECONDS)
        return {
            "workload": found.workload(sizes.vocab_size, speed).to_json(),
            "block_size": found.block_tokens if found.hash_ids else None,
            "says": found.sentences(speed),
        }

    answer(read)


if __name__ == "__main__":
    main()
