"""Texts for the token ids of a recording: from its model's tokenizer if that is on this machine, otherwise the ids themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_FOLDER
from core.errors import UnsupportedModel
from core.models.hub import hub_answers
from core.models.tokenizer import has_tokenizer
from core.trace.detokenize import plain

_confined: frozenset[str] | None = None  # of this process


def confine_to(names: Iterable[str]) -> None:
    """From now on this process reads only these models' files, whatever a recording names, and those of the built-in ones."""
    global _confined
    _confined = frozenset(names)


def model_folder(name: str) -> Path | None:
    """The folder of the model's files, or None if they are not on this machine."""
    named = [Path(name)] if _confined is None or name in _confined else []
    for folder in (*named, BUILTIN_FOLDER / Path(name).name):
        with suppress(OSError):  # the name may be too long for a file
            if name and (folder / "config.json").is_file():
                return folder
    return None


def import_tokenizers() -> Any:
    """The tokenizer factory of transformers. It is imported late since that takes seconds, and many recordings name no model."""
    from transformers import AutoTokenizer

    return AutoTokenizer


@cache
def tokenizer_of(name: str) -> Any:
    """The tokenizer of a model in a folder, or of a built-in model by name; None if it has none."""
    folder = model_folder(name)
    try:
        if folder is not None and folder.parent == BUILTIN_FOLDER:
            return PlainTokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
        if folder is None or not has_tokenizer(str(folder)):
            return None
        return import_tokenizers().from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
    except Exception:  # a folder without a model fails in many ways
        return None


def named_tokenizer(name: str) -> Any:
    """The tokenizer in a folder or with a hub id. Raises UnsupportedModel if it cannot be loaded."""
    offline = not os.path.exists(name) and not hub_answers()
    try:
        return import_tokenizers().from_pretrained(name, local_files_only=offline)
    except (OSError, ValueError) as error:
        if offline:
            raise UnsupportedModel(
                f"The tokenizer {name!r} is no folder here, and the Hugging Face hub cannot be reached."
            ) from None
        raise UnsupportedModel(
            f"The tokenizer {name!r} cannot be loaded: {' '.join(str(error).split())[:200]}"
        ) from None


class PlainIds:
    """Stands in for a tokenizer: decodes each id to itself, see `plain`."""

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        """The ids themselves, as text."""
        return "".join(map(plain, token_ids))
