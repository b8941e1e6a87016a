"""Chooses the limits of a server. A public Space gets the smaller numbers.

At home, any folder or hub id may be loaded as a model. If strangers can reach the page, only the
built-in models and those named by its owner (`INFLIGHT_MODELS`, `--model`) may be loaded; nothing
else that a visitor names is looked for, on the disk or on the hub.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.config import BUILTIN_MODELS, SMOLLM2
from core.serving.limits import LOOPBACK
from core.torch_engine.models.names import is_fetched, model_named
from visualizer.jobs.limits import HERE, Limits

SPACE = Limits(
    requests=32,
    prompt_characters=4_000,
    total_characters=20_000,
    new_tokens=320,
    total_tokens=4_096,
    lanes=16,
    budget=1_024,
    kv_tokens=8_192,
    steps=800,
    seconds=60,
    upload_bytes=8 * 2**20,
    concurrent_runs=2,
    repeats=3,
    shared_requests=128,
    shared_requests_of_one=32,
    kept_bytes=2**28,
    any_model=False,
)


def is_space(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a Space, behind the proxy of Hugging Face."""
    return bool(environment.get("SPACE_ID"))


def limits(
    environment: Mapping[str, str] = os.environ, host: str | None = None, trusted: bool = False
) -> Limits:
    """The limits here: the smaller ones if strangers can reach the page, which they can on a Space
    and on any address but loopback.

    host: the address that the page listens on. trusted: visitors get the limits of a page at home.
    """
    numbers = SPACE if is_space(environment) or are_strangers(host, trusted) else HERE
    return replace(numbers, offered=owners_models(environment.get("INFLIGHT_MODELS", "")))


def owners_models(named: str) -> tuple[str, ...]:
    """The built-in models, the downloaded one, and those of a comma-separated list, each once."""
    own = (model_named(name) for name in named.split(","))
    fetched = [SMOLLM2] if is_fetched() else []
    return tuple(dict.fromkeys((*BUILTIN_MODELS, *fetched, *filter(None, own))))


def are_strangers(host: str | None, trusted: bool) -> bool:
    """Whether strangers can reach the page: see `limits`."""
    return not trusted and host not in (None, *LOOPBACK)


def names_of(
    host: str, allowed: Sequence[str], is_behind: object, trusted: bool
) -> tuple[str, ...] | None:
    """A page's names for `page_guard`; None behind a proxy or a tunnel, whose names are unknown
    here. On loopback, only a proxy has visitors who need to be trusted.
    """
    if is_behind or (trusted and not are_strangers(host, False)):
        return None
    return host, *allowed
