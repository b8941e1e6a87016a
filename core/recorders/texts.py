"""Texts for the token ids of a recording, by its model's tokenizer if that is on this machine;
otherwise the ids stand in for them.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_FOLDER, SMOLLM2, model_source, models_folder
from core.errors import UnsupportedModel
from core.torch_engine.models.gguf import folder_for
from core.torch_engine.models.names import is_gguf
from core.torch_engine.models.pretrained import hub_answers, read_tokenizer
from core.torch_engine.models.tokenizer import is_tokenizer
from core.trace.detokenize import plain

_confined: frozenset[str] | None = None  # the only models whose files may be read


def confine_to(names: Iterable[str]) -> None:
    """From now on this process reads the files of no other models, whatever a recording names."""
    global _confined
    _confined = frozenset(names)


def model_folder(name: str) -> Path | None:
    """The folder of a model's files (for GGUF, the converted one); None if it is not here."""
    may = _confined is None or name in _confined or name == SMOLLM2
    named = [Path(model_source(name))] if may else []
    if may and is_gguf(name):
        with suppress(OSError):  # no such file
            named = [folder_for(name, models_folder() / "gguf")]
    for folder in (*named, BUILTIN_FOLDER / Path(name).name):
        with suppress(OSError):  # the name may be too long for a file
            if name and (folder / "config.json").is_file():
                return folder
    return None


def tokenizer_of(name: str) -> Any:
    """The tokenizer of a model in a folder, or of a built-in model by name; None if it has none."""
    folder = model_folder(name)
    return None if folder is None else _in_folder(folder)


@cache
def _in_folder(folder: Path) -> Any:
    try:
        if folder.parent == BUILTIN_FOLDER:
            return PlainTokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
        return read_tokenizer(str(folder)) if is_tokenizer(os.listdir(folder)) else None
    except Exception:  # a folder without a model fails in many ways
        return None


def named_tokenizer(name: str) -> Any:
    """The tokenizer in a folder or with a hub id; raises UnsupportedModel where there is none."""
    offline = not os.path.exists(name) and not hub_answers()
    try:
        return read_tokenizer(name, offline=offline)
    except (OSError, ValueError) as error:
        if offline:
            raise UnsupportedModel(
                f"The tokenizer {name!r} is no folder here, and the Hugging Face hub cannot be"
                " reached."
            ) from None
        raise UnsupportedModel(
            f"The tokenizer {name!r} cannot be loaded: {' '.join(str(error).split())[:200]}"
        ) from None


class PlainIds:
    """A stand-in for a tokenizer that decodes each id to itself, see `plain`."""

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        """The ids themselves, as text."""
        return "".join(map(plain, token_ids))
