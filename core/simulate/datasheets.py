"""Numbers from data sheets and model cards, each with its source: accelerators, models, and the
cost of joining accelerators.

docs/simulation.md has the same numbers as tables; a test compares them.
"""

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
        title="NVIDIA A100 SXM 80 GB",
        flops=312e12,
        bytes_per_s=2.039e12,
        memory_bytes=80e9,
        link=Link("NVLink 3", 300e9, _HOP_NVLINK),
        source=StatedSource(
            "NVIDIA A100 Tensor Core GPU data sheet",
            "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
            "half of NVLink's 600 GB/s, which counts both directions",
        ),
    ),
    "h100": Accelerator(
        title="NVIDIA H100 SXM 80 GB",
        flops=989e12,
        bytes_per_s=3.35e12,
        memory_bytes=80e9,
        link=Link("NVLink 4", 450e9, _HOP_NVLINK),
        source=StatedSource(
            "NVIDIA H100 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/h100/",
            "half of 1,979 TFLOPS, which count sparsity; half of NVLink's 900 GB/s",
        ),
    ),
    "h200": Accelerator(
        title="NVIDIA H200 SXM 141 GB",
        flops=989e12,
        bytes_per_s=4.8e12,
        memory_bytes=141e9,
        link=Link("NVLink 4", 450e9, _HOP_NVLINK),
        source=StatedSource(
            "NVIDIA H200 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/h200/",
            "half of 1,979 TFLOPS, which count sparsity; half of NVLink's 900 GB/s",
        ),
    ),
    "l4": Accelerator(
        title="NVIDIA L4 24 GB",
        flops=121e12,
        bytes_per_s=0.3e12,
        memory_bytes=24e9,
        link=Link("PCIe 4.0 x16", 32e9, _HOP_PCIE),
        source=StatedSource(
            "NVIDIA L4 Tensor Core GPU, product specifications",
            "https://www.nvidia.com/en-us/data-center/l4/",
            "half of 242 TFLOPS, which count sparsity; half of PCIe's 64 GB/s",
        ),
    ),
    "m2-ultra": Accelerator(
        title="Apple M2 Ultra, 76 GPU cores, 192 GB",
        flops=27.2e12,
        bytes_per_s=0.8e12,
        memory_bytes=192e9,
        link=None,
        source=StatedSource(
            "Apple, Mac Pro",
            "https://www.apple.com/mac-pro/",
            "32-bit operations: no other number is given",
        ),
    ),
}

_CONFIG = "https://huggingface.co/{}/blob/main/config.json"
MODELS: dict[str, Model] = {
    "124m": Model(
        title="GPT-2 124M",
        parameters=124_439_808,
        layers=12,
        heads=12,
        kv_heads=12,
        head_size=64,
        vocab_size=50_257,
        context=1024,
        source=StatedSource(
            "openai-community/gpt2, config.json", _CONFIG.format("openai-community/gpt2")
        ),
    ),
    "1b": Model(
        title="Llama 3.2 1B",
        parameters=1_235_814_400,
        layers=16,
        heads=32,
        kv_heads=8,
        head_size=64,
        vocab_size=128_256,
        context=131_072,
        source=StatedSource(
            "meta-llama/Llama-3.2-1B, config.json", _CONFIG.format("meta-llama/Llama-3.2-1B")
        ),
    ),
    "8b": Model(
        title="Llama 3.1 8B",
        parameters=8_030_261_248,
        layers=32,
        heads=32,
        kv_heads=8,
        head_size=128,
        vocab_size=128_256,
        context=131_072,
        source=StatedSource(
            "meta-llama/Llama-3.1-8B, config.json", _CONFIG.format("meta-llama/Llama-3.1-8B")
        ),
    ),
    "70b": Model(
        title="Llama 3.1 70B",
        parameters=70_553_706_496,
        layers=80,
        heads=64,
        kv_heads=8,
        head_size=128,
        vocab_size=128_256,
        context=131_072,
        source=StatedSource(
            "meta-llama/Llama-3.1-70B, config.json", _CONFIG.format("meta-llama/Llama-3.1-70B")
        ),
    ),
}
"""Parameters follow from each config's numbers."""
