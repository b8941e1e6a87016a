"""How a model is named: built in, a folder, a GGUF file, or an id on the hub. Imports nothing but
the standard library.
"""

import os
from pathlib import Path

from core.config import BUILTIN_MODELS, SMOLLM2, model_source, models_folder

PACKED = 1
"""How `smollm2` is packed for a tab. Another number for another file: browsers keep it by that."""

_QUOTES = "\"'`“”„‘’"


def model_named(text: str) -> str:
    """The name in typed or pasted text, without quotes and blanks; `~` is the home folder."""
    name = text.strip().strip(_QUOTES).strip()
    if name in BUILTIN_MODELS or not is_path(name):
        return name
    folder = os.path.normpath(os.path.expanduser(name))
    # normalised, "./model" would be an id on the hub
    return folder if is_path(folder) else os.path.join(".", folder)


def is_path(name: str) -> bool:
    """Whether a name can only be a folder's: a hub id has at most one slash."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name


def is_gguf(name: str) -> bool:
    """Whether a name can only be that of a GGUF file."""
    return name.lower().endswith(".gguf")


def public_name(name: str) -> str:
    """What clients call a model: they need not know its path on the server."""
    return os.path.basename(os.path.abspath(name)) if os.path.exists(name) else name


def is_fetched() -> bool:
    """Whether `smollm2` is on this machine."""
    return os.path.isfile(os.path.join(model_source(SMOLLM2), "config.json"))


def packed_smollm2() -> Path:
    """The path, existing or not, of the file with which a browser's tab runs `smollm2`."""
    return models_folder() / f"{SMOLLM2}-{PACKED}.gz"


def folder_fault(name: str) -> str | None:
    """Why a name is neither a folder of a model nor a GGUF file, as the end of a sentence; None if
    it is one, or may be an id on the hub.
    """
    if is_gguf(name):
        return None if os.path.isfile(name) else "there is no such file"
    if name == SMOLLM2:
        return None  # if it is missing, it is fetched
    source = model_source(name)
    if os.path.exists(source):
        has_config = os.path.isfile(os.path.join(source, "config.json"))
        return None if has_config else "there is no config.json in that folder"
    return "there is no such folder" if is_path(name) else None
