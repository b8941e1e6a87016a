"""`python -m core …`"""

from core.cli import main

if __name__ == "__main__":
    main()
