"""Prepared bursts, which are requests that arrive all at once and show one thing about batching;
and suggested prompts for visitors who have none of their own.
"""

from dataclasses import dataclass

from core.config import BUILTIN_MODELS
from core.workload.request import SamplingParams


@dataclass(frozen=True)
class DemoWorkload:
    """A prepared burst. shows: what it shows, in one line. prompts: with numbers of new tokens."""

    name: str
    shows: str
    prompts: tuple[tuple[str, int], ...]

    @property
    def requests(self) -> tuple[tuple[str, SamplingParams], ...]:
        """The requests: greedy, and exactly as long as asked, so that lengths are known."""
        return tuple((prompt, SamplingParams(new, ignore_eos=True)) for prompt, new in self.prompts)


_NAMES = (
    "Romeo",
    "Juliet",
    "Hamlet",
    "Ophelia",
    "Macbeth",
    "Banquo",
    "Lear",
    "Cordelia",
    "Othello",
    "Iago",
)
_SCENE = (
    "The king, the queen, and all the lords of the court are come together in the great hall of the"
    " castle. "
)

_BY_SHAKESPEARE = (
    "O Romeo,",
    "To be, or not to be,",
    "What news from the king?",
    "Good morrow, cousin.",
    "The witches said:",
    "Farewell,",
)
_BY_ANYBODY = (
    "Once upon a time",
    "The best thing about the sea is",
    "Dear diary, today",
    "The robot opened the door and",
    "My favourite recipe begins with",
    "In the year 2050",
)


# SmolLM2 ends its answers after 8 to 62 tokens, no two of three in turn after alike many
_QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the moon.",
    "What is ice made of?",
    "Name three fruits.",
    "Give me a tip for sleeping well.",
    "Name a famous painter.",
    "What is a noun?",
    "What is 2 + 2?",
    "Write a haiku about the sea.",
)


def house_prompts(model: str, answers: bool) -> tuple[str, ...]:
    """Suggested prompts for a model: questions if it answers them, beginnings of texts otherwise,
    from Shakespeare for the built-in models, which know nothing else. The first three are the best.
    """
    if answers:
        return _QUESTIONS
    return _BY_SHAKESPEARE if model in BUILTIN_MODELS else _BY_ANYBODY


def demo_workloads(answers: bool) -> dict[str, DemoWorkload]:
    """The prepared bursts by name: questions for a model that answers, lines of plays otherwise."""
    line = "Tell me about {}." if answers else "{}: "
    long = (
        "Tell me the story of Romeo and Juliet."
        if answers
        else "Once more unto the breach, dear friends, once more; "
    )
    speaker = "{}" if answers else "{} speaks"
    bursts = (
        DemoWorkload(
            "short-and-long",
            "Thirty short answers and one long one: who waits for whom?",
            ((long, 120), *((line.format(_NAMES[i % 10]), 8) for i in range(30))),
        ),
        DemoWorkload(
            "equal",
            "Sixteen of the same length: with nothing to refill, policies hardly differ.",
            tuple((line.format(speaker.format(_NAMES[i % 10])), 24) for i in range(16)),
        ),
        DemoWorkload(
            "shared-prefix",
            "Twelve prompts with the same beginning: prefix caching computes it once.",
            tuple((_SCENE + line.format(_NAMES[i % 10]), 16) for i in range(12)),
        ),
    )
    return {burst.name: burst for burst in bursts}
