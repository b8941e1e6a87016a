"""The questions that recorded runs answer, as the page groups them. A preset that is named nowhere stands under the last."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """title: what a visitor may ask. answer: one line under it. presets: their names."""

    title: str
    answer: str
    presets: tuple[str, ...]


QUESTIONS = (
    Question(
        "Why did mine wait?",
        "A request joins the moment a lane is free; until then it waits, and the page says for what.",
        ("short-and-long", "gpt2-six", "poisson-32"),
    ),
    Question(
        "A long prompt arrives",
        "Read whole it holds everybody up for one step; read in chunks it shares each step with those who write.",
        ("long-prompt-arrives", "long-prompt-chunked", "budget-512", "chunk-7-7-6"),
    ),
    Question(
        "Memory runs out",
        "The KV cache is cut into blocks: too few of them force preemptions, prompts that begin alike share them.",
        ("kv-pressure", "shared-prefix", "prefix-too-short"),
    ),
    Question(
        "When does it not help?",
        "Equal lengths leave no lane to refill early; padding costs whatever the policy is.",
        ("equal-lengths", "three-lengths", "padding-693", "one-joins-two"),
    ),
    Question(
        "One policy after the other",
        "The same short requests under each policy, as the lessons go through them.",
        ("verses-sequential", "verses-static", "verses-dynamic", "verses-continuous", "one-request", "three-short"),
    ),
    Question("The articles' own", "The runs that the articles compute by hand, on this engine.", ()),
)


def question_of(preset: str) -> int:
    """Which of `QUESTIONS` a preset answers."""
    return next((n for n, question in enumerate(QUESTIONS) if preset in question.presets), len(QUESTIONS) - 1)
