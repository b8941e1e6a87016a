"""Facts about KV cache groups (layers that share a block table for each request), and which blocks
leave a table before the request ends.

Source: vLLM 0.32, v1/core/single_type_kv_cache_manager.py and v1/kv_cache_interface.py.
"""

import re
from collections.abc import Callable
from typing import Any

_KEEP_ALL = (
    "full_attention",
    "mla_attention",
    "sink_full_attention",
    "encoder_only_attention",
    "cross_attention",
)
_LEAVE_IN_ORDER = ("sliding_window", "sliding_window_mla", "chunked_local_attention")


def groups_of(scheduler: Any, read: Callable[[Any, str], Any]) -> list[dict[str, Any]] | None:
    """The KV cache groups for the header, or None if vLLM does not expose them. kind: vLLM's own
    name. window: how many tokens the layers attend to, including the current one.
    """
    groups = read(scheduler, "kv_cache_config.kv_cache_groups")
    metadata = read(scheduler, "kv_cache_manager.kv_cache_event_metadata")
    managers = read(scheduler, "kv_cache_manager.coordinator.single_type_managers")
    if groups is None or metadata is None or managers is None:
        return None
    facts = []
    for group, (kind, window), manager in zip(groups, metadata, managers, strict=True):
        spec = group.kv_cache_spec
        # vLLM calls this full attention, but blocks in the middle leave
        if hasattr(spec, "rswa_window"):
            kind, window = "r_swa", spec.rswa_window
        elif kind == "chunked_local_attention":
            window = spec.attention_chunk_size
        layers = [re.search(r"\.(\d+)\.", f".{name}.") for name in group.layer_names]
        indices = sorted({int(layer[1]) for layer in layers if layer}) if all(layers) else None
        facts.append(
            {
                "kind": kind,
                "window": window,
                "block_size": manager.block_size,
                "layers": indices,
                # the most blocks with which a request is admitted, for groups whose blocks leave
                "most_blocks": getattr(manager, "max_admission_blocks_per_request", None),
            }
        )
    return facts


class Leaving:
    """Notices which blocks leave a request's table before the request ends: vLLM replaces them by
    its null block.

    If blocks leave in order, a step reads only the first remaining block of each table, otherwise
    all of them.
    """

    def __init__(self, scheduler: Any, groups: list[dict[str, Any]]) -> None:
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers if groups else ()
        self._kinds = {
            index: group["kind"]
            for index, group in enumerate(groups)
            if group["kind"] not in _KEEP_ALL
        }
        self._blocks = {index: managers[index].req_to_blocks for index in self._kinds}
        # the tables by request and group, with 0 for a block that has left
        self._ids: dict[str, dict[int, list[int]]] = {}
        # for blocks that leave in order: the first index that may still have a block
        self._first: dict[tuple[str, int], int] = {}

    def of_step(self, scheduled: dict[str, int], blocks: list[list[Any]]) -> list[list[Any]]:
        """[request, group, ids] of the blocks that left. blocks: those that the step adds."""
        left: list[list[Any]] = []
        changed = {request: tables for request, tables, _ in blocks}
        for request, _, kind in blocks:
            if kind == "table":
                self.forget(request)
        for request in scheduled if self._kinds else ():
            tables, known = changed.get(request), self._ids.setdefault(request, {})
            for group in self._kinds:
                ids = known.setdefault(group, [])
                if ids and (gone := self._gone(request, group, ids)):
                    left.append([request, group, gone])
                if tables is not None:
                    ids += tables[group]
        return left

    def _gone(self, request: str, group: int, ids: list[int]) -> list[int]:
        in_order = self._kinds[group] in _LEAVE_IN_ORDER
        now, gone = self._blocks[group].get(request, ()), []
        first = self._first.get((request, group), 0)
        for place in range(first, min(len(ids), len(now))):
            if now[place].is_null:
                if ids[place]:
                    gone.append(ids[place])
                    ids[place] = 0
                first = place + 1
            elif in_order:
                break
        if in_order:
            self._first[request, group] = first
        return gone

    def forget(self, request: str) -> None:
        """Forget a request that has ended or lost its cache."""
        for group in self._ids.pop(request, {}):
            self._first.pop((request, group), None)
