"""Numbers from data sheets and model cards, each with its source: accelerators, models, and the
cost of joining accelerators.

docs/simulation.md has the same numbers as tables; a test compares them.
"""

from __future__ import annotations

from typing import NamedTuple


class StatedSource(NamedTuple):
    """The source of a number. note: how it was derived, if it is not stated as such."""

    title: str
    url: str
    note: str = ""


class Link(NamedTuple):
    """A link between the cards of a server. bytes_per_s: of each card, in one direction. hop_s: how
    long a message takes from one card to the next.
    """

    title: str
    bytes_per_s: float
    hop_s: float


class Accelerator(NamedTuple):
    """One card. flops: dense multiplications and additions per second, with 16-bit numbers.
    bytes_per_s: of its memory. link: None if cards are not joined.
    """

    title: str
    flops: float
    bytes_per_s: float
    memory_bytes: float
    link: Link | None
    source: StatedSource


class Model(NamedTuple):
    """A dense transformer. context: the most tokens of a request, prompt and answer."""

    title: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    context: int
    source: StatedSource

    @property
    def hidden_size(self) -> int:
        """Numbers in a token's hidden state; all heads together, in each of these models."""
        return self.heads * self.head_size


MOST_CARDS = 8
"""The most cards of one server, those of an HGX board."""

ALL_REDUCE_S = 6.6e-6
"""The seconds that an all-reduce takes before its first hop."""
NCCL = StatedSource(
    "NCCL 2.30's own estimate: a ring, its low-latency protocol",
    "https://github.com/NVIDIA/nccl/blob/5067397c/src/graph/tuning.cc",
)
"""The source of ALL_REDUCE_S and of the `hop_s` of links: `baseLatencies` and `hwLatencies`."""

_HOP_NVLINK, _HOP_PCIE = 0.6e-6, 1.0e-6

ACCELERATORS: dict[str, Accelerator] = {
    "a100": Accelerator(
        "NVIDIA A100 SXM 80 GB",
        312e12,
        2.039e12,
        80e9,
        Link("NVLink 3", 300e9, _HOP_NVLINK),
        StatedSource(
            "NVIDIA A100 Tensor Core GPU data sheet",
            "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
            "half of NVLink's 600 GB/s, which counts both directions",
        ),
    ),
    "h100": Accelerator(
        "NVIDIA H100 SXM 80 GB",
        989e12,
        3.35e12,
        80e9,
        Link("NVLink 4", 450e9, _HOP_NVLINK),
        StatedSource(
            "NVIDIA H100 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/h100/",
            "half of 1,979 TFLOPS, which count sparsity; half of NVLink's 900 GB/s",
        ),
    ),
    "h200": Accelerator(
        "NVIDIA H200 SXM 141 GB",
        989e12,
        4.8e12,
        141e9,
        Link("NVLink 4", 450e9, _HOP_NVLINK),
        StatedSource(
            "NVIDIA H200 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/h200/",
            "half of 1,979 TFLOPS, which count sparsity; half of NVLink's 900 GB/s",
        ),
    ),
    "l4": Accelerator(
        "NVIDIA L4 24 GB",
        121e12,
        0.3e12,
        24e9,
        Link("PCIe 4.0 x16", 32e9, _HOP_PCIE),
        StatedSource(
            "NVIDIA L4 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/l4/",
            "half of 242 TFLOPS, which count sparsity; half of PCIe's 64 GB/s",
        ),
    ),
    "m2-ultra": Accelerator(
        "Apple M2 Ultra, 76 GPU cores, 192 GB",
        27.2e12,
        0.8e12,
        192e9,
        None,
        StatedSource(
            "Apple, Mac Pro",
            "https://www.apple.com/mac-pro/",
            "32-bit operations: no other number is given",
        ),
    ),
}

_CONFIG = "https://huggingface.co/{}/blob/main/config.json"
MODELS: dict[str, Model] = {
    "124m": Model(
        "GPT-2 124M",
        124_439_808,
        12,
        12,
        12,
        64,
        50_257,
        1024,
        StatedSource("openai-community/gpt2, config.json", _CONFIG.format("openai-community/gpt2")),
    ),
    "1b": Model(
        "Llama 3.2 1B",
        1_235_814_400,
        16,
        32,
        8,
        64,
        128_256,
        131_072,
        StatedSource(
            "meta-llama/Llama-3.2-1B, config.json", _CONFIG.format("meta-llama/Llama-3.2-1B")
        ),
    ),
    "8b": Model(
        "Llama 3.1 8B",
        8_030_261_248,
        32,
        32,
        8,
        128,
        128_256,
        131_072,
        StatedSource(
            "meta-llama/Llama-3.1-8B, config.json", _CONFIG.format("meta-llama/Llama-3.1-8B")
        ),
    ),
    "70b": Model(
        "Llama 3.1 70B",
        70_553_706_496,
        80,
        64,
        8,
        128,
        128_256,
        131_072,
        StatedSource(
            "meta-llama/Llama-3.1-70B, config.json", _CONFIG.format("meta-llama/Llama-3.1-70B")
        ),
    ),
}
"""Parameters follow from each config's numbers."""
