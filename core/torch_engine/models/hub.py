"""Whether the Hugging Face hub can be reached, asked once and briefly: its own client would retry
for most of a minute.
"""

from __future__ import annotations

from core.config import BUILTIN_MODELS
from core.errors import UnsupportedModel

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
    """Raises UnsupportedModel if the hub, where this model would be looked for, cannot be
    reached.
    """
    if not hub_answers():
        raise unreachable(name)


def unreachable(name: str) -> UnsupportedModel:
    """The refusal of a model that would have to be fetched, where the hub cannot be reached."""
    return UnsupportedModel(
        f"The model {quoted(name)} is neither built in ({', '.join(BUILTIN_MODELS)}) nor a folder"
        " here, and the Hugging Face hub cannot be reached."
    )


def quoted(name: str) -> str:
    """The name of a model as a sentence shows it."""
    return repr(name if len(name) <= 200 else name[:200] + "…")
