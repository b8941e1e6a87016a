"""`python -m core …`: the engine's commands alone, where the page's packages are not installed."""

from core.cli import main
from core.start import own_process

if __name__ == "__main__":
    own_process()
    main(name="python -m core")
