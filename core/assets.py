"""Where the files lie that ship with the code: models, recorded runs, the page's scripts."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILTIN_FOLDER = ASSETS / "models"
BUILTIN_MODELS = ("shakespeare-bpe", "shakespeare-char")
DEFAULT_MODEL = BUILTIN_MODELS[0]


def model_source(name: str) -> str:
    """The folder of a built-in model; the name of any other, which is a folder's or a hub id."""
    return str(BUILTIN_FOLDER / name) if name in BUILTIN_MODELS else name
