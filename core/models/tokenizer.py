"""A model's tokenizer without the model: for those who read what was written, and need no torch for it."""

from __future__ import annotations

import os
from typing import Any

from core.config import model_source


def local_tokenizer(name: str) -> Any | None:
    """The tokenizer of a built-in model or a local folder; None where there is none."""
    source = model_source(name)
    if not os.path.isdir(source) or not has_tokenizer(source):
        return None
    from transformers import AutoTokenizer  # seconds to import

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    except Exception:  # a folder that is no model's fails in many ways
        return None


def has_tokenizer(folder: str) -> bool:
    """Whether a folder holds the files of one."""
    return any("token" in file or file.startswith("vocab") for file in os.listdir(folder))
