"""How a model is named: built in, a folder, or an id on the hub. Imports nothing but the standard library."""

from __future__ import annotations

import os

from core.config import BUILTIN_MODELS, model_source

_QUOTES = "\"'`“”„‘’"


def model_named(text: str) -> str:
    """The name in what somebody typed or pasted: without quotes and blanks around it, `~` being the home folder."""
    name = text.strip().strip(_QUOTES).strip()
    if name in BUILTIN_MODELS or not is_path(name):
        return name
    folder = os.path.normpath(os.path.expanduser(name))
    return (
        folder if is_path(folder) else os.path.join(".", folder)
    )  # normalised, "./model" would be an id on the hub


def is_path(name: str) -> bool:
    """Whether a name can only be a folder's: a hub id has at most one slash."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1 or "\\" in name


def folder_fault(name: str) -> str | None:
    """Why a name is no folder of a model, as the end of a sentence; None if it is one, or may be an id on the hub."""
    source = model_source(name)
    if os.path.exists(source):
        return (
            None
            if os.path.isfile(os.path.join(source, "config.json"))
            else "there is no config.json in that folder"
        )
    return "there is no such folder" if is_path(name) else None
