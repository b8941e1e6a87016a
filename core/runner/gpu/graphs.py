"""Passes of few tokens as CUDA graphs: hundreds of kernels in one launch, over buffers that stay in place."""

from __future__ import annotations

from collections.abc import Callable

import torch

Capture = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]
"""From a function over fixed tensors, one that does the same work again and answers with the same tensor."""

_WARM_UPS = 2  # libraries choose their kernels and take their workspaces in the first calls, which no graph may hold


class CudaCapture:
    """A `Capture` into CUDA graphs, which share one pool of memory: they run one after the other."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Raises RuntimeError where the function waits for the device or does something else that no graph can hold."""
        current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                function()
        current.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = function()
        except RuntimeError:
            torch.cuda.set_stream(current)  # a capture that fails leaves its own behind
            raise

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay
