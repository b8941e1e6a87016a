"""How many examples properties are tried on: the profile says how many of a hundred. See
tests/conftest.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(number: int, **more: Any) -> settings:
    """`number` where the profile has Hypothesis' own hundred (`--hypothesis-profile=ci` or
    `=default`), else its share of them.
    """
    return settings(max_examples=tries(number), deadline=None, **more)


def tries(number: int) -> int:
    """The same for a test that draws its examples itself."""
    return max(number * settings().max_examples // 100, 1)
