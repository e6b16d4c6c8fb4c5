"""``python -m sordino`` is the same as ``sordino``."""

from sordino.cli import main

if __name__ == "__main__":
    main()
