"""The only calls of transformers' `from_pretrained`: code that comes with a model is never run.
Also checks once, and briefly, whether the hub can be reached: its own client would retry for most
of a minute.

Without `trust_remote_code=False` transformers asks on standard input whether to run such code, and
a file redirected there could answer.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from core.config import BUILTIN_MODELS
from core.errors import UnsupportedModel, first_sentence

_TEXTS = (".json", ".jinja", ".txt", ".model")  # files that are read whole
_MOST_TEXT = 128 * 2**20  # bytes; the largest tokenizers have a third of that
_MOST_CONFIG = 2**21  # bytes
_MOST_ADDED = 2**16  # tokens beside the vocabulary, each of which takes transformers a while
_MOST_GROWTH = 64  # no tokenizer that is known makes more than a few letters of one


def import_tokenizers() -> Any:
    """The tokenizer factory of transformers, which takes seconds to import; `--help` and recordings
    that name no model must not wait for it.
    """
    from transformers import AutoTokenizer

    return AutoTokenizer


@contextmanager
def _refusing(source: str, file: str) -> Iterator[None]:
    """Turn bare exceptions of libraries, such as those for a file of another form, into ValueError,
    which is also raised for a file so large that reading it could take all memory. file: what is
    read, in a word.
    """
    for path in Path(source).iterdir() if os.path.isdir(source) else ():
        if path.suffix in _TEXTS and path.is_file() and path.stat().st_size > _MOST_TEXT:
            raise ValueError(f"its {path.name} is larger than {_MOST_TEXT >> 20} MiB")
    try:
        yield
    except (OSError, ValueError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # only a panic in Rust is a fault of the file without being an Exception
        raise ValueError(f"its {file} contradicts itself: {first_sentence(error)}") from None


def read_config(source: str, *, offline: bool = True) -> Any:
    """The config in a folder or, unless `offline`, of a hub id; raises what transformers raises,
    ValueError if it needs code of its own or contradicts itself.
    """
    from transformers import AutoConfig, PreTrainedConfig

    with _refusing(source, "config"):
        given, _ = PreTrainedConfig.get_config_dict(source, local_files_only=offline)
        text = json.dumps(given)
        if len(text) > _MOST_CONFIG:  # transformers copies and checks each item of a list
            raise ValueError(f"its config is larger than {_MOST_CONFIG >> 20} MiB")
        # transformers makes a table of all labels, also for models that write texts
        if labels := re.search(r'"num_labels": (\d{5,})', text):
            raise ValueError(f"its config names {labels[1][:20]} labels")
        return AutoConfig.from_pretrained(source, local_files_only=offline, trust_remote_code=False)


def read_tokenizer(source: str, *, offline: bool = True) -> Any:
    """The tokenizer in a folder or, unless `offline`, of a hub id; raises what transformers raises,
    ValueError if it needs code of its own, contradicts itself, or makes a text so much longer that
    a short prompt could take all memory.
    """
    with _refusing(source, "tokenizer"):
        for path in filter(Path.is_file, Path(source).glob("tokenizer*.json")):
            added = path.read_bytes().count(b'"single_word"')  # each of them says whether it is one
            if added > _MOST_ADDED:
                raise ValueError(
                    f"its {path.name} adds {added:,} tokens, of {_MOST_ADDED:,} at most"
                )
        tokenizer = import_tokenizers().from_pretrained(
            source, local_files_only=offline, trust_remote_code=False
        )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    for stage in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        part = getattr(backend, stage, None)
        if part is not None and _growth(json.loads(part.__getstate__())) > _MOST_GROWTH:
            raise ValueError(
                f"its tokenizer could make a text more than {_MOST_GROWTH} times as long"
            )
    return tokenizer


def _growth(part: Any) -> int:
    """How many times as long a tokenizer's step, with those in it, could make a text: by what it
    puts in place of a piece, or by how often its template repeats the text.
    """
    if isinstance(part, list):
        return prod(map(_growth, part))
    if not isinstance(part, dict):
        return 1
    match part.get("type"):
        case "Replace":
            replaced = part["pattern"].get("String") or " "  # a pattern may match one letter
            return max(1, -(-len(part["content"]) // len(replaced)))
        case "Prepend":
            return max(1, len(part["prepend"]))  # of one letter
        case "TemplateProcessing":
            return max(1, sum("Sequence" in piece for piece in part["single"]))
        case _:
            return prod(map(_growth, part.values()))


def read_model(folder: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model in a folder, from its safetensors alone, and what transformers reports of weights
    that are missing or of another shape; options: as `from_pretrained` has them.
    """
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # the report has them
        trust_remote_code=False,
        **options,
    )
    return loaded


HUB_TIMEOUT = 5.0  # seconds


def hub_answers() -> bool:
    """Whether the hub can be reached now."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception:  # no network, no name, a proxy that refuses, or the user's own offline switch
        return False
    return True


def check_hub(name: str) -> None:
    """Raises UnsupportedModel if the hub, where this model may be, cannot be reached."""
    if not hub_answers():
        raise unreachable(name)


def unreachable(name: str) -> UnsupportedModel:
    """The refusal of a model that would have to be fetched when the hub cannot be reached."""
    return UnsupportedModel(
        f"The model {quoted(name)} is neither built in ({', '.join(BUILTIN_MODELS)}) nor a folder"
        " here, and the Hugging Face hub cannot be reached."
    )


def quoted(name: str) -> str:
    """The name of a model as a sentence shows it."""
    return repr(name if len(name) <= 200 else name[:200] + "…")
