"""Engine features that its steps cannot show: a sentence for each, by the fact in the raw header,
for the notes of the trace.
"""

from __future__ import annotations

from typing import Any

SENTENCES: dict[str, tuple[tuple[Any, ...], str]] = {
    "pipeline_parallel_size": (
        (1,),
        (
            "Pipeline parallelism: several batches are in flight at once, so steps overlap, and a"
            " running request that computes nothing in one may be in another."
        ),
    ),
    "prefill_schedule_interval": (
        (1,),
        (
            "Prefill interval: prompts are computed in certain steps only, and that a request waits"
            " for such a step is not recorded."
        ),
    ),
    "kv_connector": (
        (),
        (
            "KV connector: what it loads is shown as prefix-cache hits, and what it saves is not"
            " shown; that a request waits for it is not recorded."
        ),
    ),
    "max_loras": (
        (),
        (
            "LoRA: which adapter a request uses is not recorded, nor that a request waits for an"
            " adapter."
        ),
    ),
    "task": (
        ("generate",),
        (
            "Pooling: a request ends when its prompt has been computed; its vector or score is not"
            " recorded."
        ),
    ),
    "multimodal": (
        (False,),
        (
            "Multimodal: images, audio and video are shown as the placeholder tokens of their"
            " prompts; the encoder's work is not recorded."
        ),
    ),
    "two_way_media": (
        (False,),
        (
            "Multimodal: the tokens of one image attend to each other in both directions, while"
            " masks are drawn causal."
        ),
    ),
    "attention": (
        ("decoder", "hybrid", "attention_free", "encoder_decoder"),
        "Encoder: every token attends to its whole prompt, while masks are drawn causal.",
    ),
    "encoder_decoder": (
        (False,),
        (
            "Encoder and decoder: only the decoder's tokens are shown; the encoder's work is not"
            " recorded."
        ),
    ),
}
"""By fact: the values that need no sentence, and the sentence for any other value. Each has its
German in assets/words/de.json.
"""


def unshown(facts: dict[str, Any]) -> list[str]:
    """Sentences on what is not shown for an engine with these facts. A fact that the header leaves
    out adds none.
    """
    return [
        sentence
        for fact, (nothing, sentence) in SENTENCES.items()
        if facts.get(fact) not in (None, *nothing)
    ]
