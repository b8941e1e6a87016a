"""The real attention weights of one layer and head in a pass, computed again on demand.

Each request runs alone through the model's own attention; a packed pass gives the same result up to
rounding, as tests of the engine prove.
"""

from collections.abc import Callable
from typing import Any

from core.errors import InflightError, shown
from core.trace.trace import Trace

MAX_CELLS = 60_000
Weigh = Callable[[list[int], int, int], Any]
"""Takes the token ids of a text, a layer and a head; returns a row of weights for each token.
Raises InflightError for a head that does not exist.
"""


def attention_weights(
    trace: Trace, weigh: Weigh, layers: int, step: int, pass_index: int, layer: int, head: int
) -> list[dict[str, Any]]:
    """For each segment of a pass `{"request", "start", "weights"}`: rows are the queries, columns
    the keys from position 0. layers: how many the model has.

    Raises InflightError for a step, pass, layer or head that does not exist, or for too many cells.
    """
    event = trace.event(step)
    if not 0 <= pass_index < len(event.passes):
        raise InflightError(f"Step {step} has no pass {shown(pass_index)}.")
    if not 0 <= layer < layers:
        raise InflightError(
            f"The model has layers 0 to {layers - 1}, so there is no layer {shown(layer)}."
        )
    segments = [s for s in event.segments if s.pass_index == pass_index]
    cells = sum(s.length * s.kv_len for s in segments)
    if cells > MAX_CELLS:
        raise InflightError(
            f"This pass has {cells:,} weights in one head; the page shows at most {MAX_CELLS:,}."
        )
    outputs = trace.outputs
    found = []
    for s in segments:
        rows = weigh((trace.prompts[s.request] + outputs[s.request])[: s.kv_len], layer, head)
        weights = [[round(float(weight), 6) for weight in row] for row in rows[s.start :]]
        found.append({"request": s.request, "start": s.start, "weights": weights})
    return found


def no_head(layer: int, heads: int, head: int) -> InflightError:
    """The error for a head that does not exist. heads: how many there are."""
    return InflightError(
        f"Layer {layer} hands out {heads} heads, so there is no head {shown(head)}."
    )
