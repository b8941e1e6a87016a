"""Texts for the token ids of a recording: by its model's tokenizer where that is on this machine, else the ids themselves."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from core.config import BUILTIN_FOLDER
from core.errors import UnsupportedModel

LEFT_OUT = -1  # in place of an id that was not recorded


def model_folder(name: str) -> Path | None:
    """Where the model's files are on this machine, if they are."""
    for folder in (Path(name), BUILTIN_FOLDER / Path(name).name):
        with suppress(OSError):  # a name that no file can have
            if name and (folder / "config.json").is_file():
                return folder
    return None


def import_tokenizers() -> Any:
    """The tokenizer factory, imported late: that takes seconds, and many recordings name no model."""
    from transformers import AutoTokenizer

    return AutoTokenizer


class Builtin:
    """A built-in model's tokenizer without transformers: its ids and texts, as that has them, for a hundredth of the time."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self._tokenizer.encode(text).ids}

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False, **_: Any) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens)


@cache
def tokenizer_of(name: str) -> Any:
    """The tokenizer of a model in a folder, or of a built-in one by name; None where it has none."""
    folder = model_folder(name)
    try:
        if folder is not None and folder.parent == BUILTIN_FOLDER:
            return Builtin(folder)
        return folder and import_tokenizers().from_pretrained(str(folder))
    except (OSError, ValueError):
        return None


def named_tokenizer(name: str) -> Any:
    """The tokenizer in a folder or of a hub id. Raises UnsupportedModel for one that cannot be loaded."""
    try:
        return import_tokenizers().from_pretrained(name)
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"The tokenizer {name!r} cannot be loaded: {' '.join(str(error).split())[:200]}") from None


def plain(token_id: int) -> str:
    """What stands for a token where no tokenizer is known."""
    return "·" if token_id == LEFT_OUT else f"⟨{token_id}⟩"


class PlainIds:
    """In the place of a tokenizer."""

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        return "".join(map(plain, token_ids))
