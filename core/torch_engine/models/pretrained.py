"""The only calls of transformers' `from_pretrained`: code that comes with a model is never run.

Without `trust_remote_code=False` transformers asks on standard input whether to run it, and a file
that is read there can answer.
"""

from __future__ import annotations

from typing import Any

_NO_CODE: dict[str, Any] = {"trust_remote_code": False}


def import_tokenizers() -> Any:
    """The tokenizer factory of transformers, which takes seconds to import: `--help`, and
    recordings that name no model, must not wait for it.
    """
    from transformers import AutoTokenizer

    return AutoTokenizer


def read_config(source: str, *, offline: bool = True) -> Any:
    """The config in a folder or, unless `offline`, of a hub id; raises what transformers raises,
    ValueError if it needs code of its own.
    """
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(source, local_files_only=offline, **_NO_CODE)


def read_tokenizer(source: str, *, offline: bool = True) -> Any:
    """The tokenizer in a folder or, unless `offline`, of a hub id; raises what transformers raises,
    ValueError if it needs code of its own.
    """
    return import_tokenizers().from_pretrained(source, local_files_only=offline, **_NO_CODE)


def read_model(folder: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model in a folder, from its safetensors alone, and what transformers reports of missing
    weights; options: as `from_pretrained` has them.
    """
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        **options,
        **_NO_CODE,
    )
    return loaded
