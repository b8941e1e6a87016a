"""Where the files lie that ship with the code: models, recorded runs, the page's scripts."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILTIN_FOLDER = ASSETS / "models"
BUILTIN_MODELS = ("shakespeare-bpe", "shakespeare-char")
