"""The questions that recorded runs answer: a heading and a line for each group of presets."""

from __future__ import annotations

from typing import NamedTuple

from core.workload.presets import GROUPS


class Question(NamedTuple):
    """title: what a visitor may ask. answer: one line under it."""

    title: str
    answer: str


QUESTIONS: dict[str, Question] = {
    "waiting": Question(
        "Why did mine wait?", "A request joins the moment a lane is free; until then it waits, and the page says for what."
    ),
    "long-prompts": Question(
        "A long prompt arrives",
        "Read whole it holds everybody up for one step; in chunks it shares each step, and somebody has to come first.",
    ),
    "memory": Question(
        "Memory runs out",
        "The KV cache is cut into blocks: too few of them force preemptions, prompts that begin alike share them.",
    ),
    "no-help": Question(
        "When does it not help?", "Equal lengths leave no lane to refill early; padding costs whatever the policy is."
    ),
    "one-by-one": Question(
        "One policy after the other", "The same short requests under each policy, as the lessons go through them."
    ),
    "in-company": Question(
        "Is the text the same in company?",
        "Token for token in float32; in bf16 rounding decides between tokens that are nearly tied.",
    ),
    "articles": Question("The articles' own", "The runs that the articles compute by hand, on this engine."),
    "engines": Question("Other engines", "Their own steps, recorded inside them; Compare has ours beside them."),
}
"""By group of `core.workload.presets.GROUPS`, in the same order, and last what no engine of ours ran."""


def question_of(preset: str) -> int:
    """Which of `QUESTIONS` a recorded run answers."""
    return next((n for n, group in enumerate(GROUPS.values()) if preset in {p.name for p in group}), len(GROUPS))
