# ruff: noqa: INP001 (a script, not a package)
"""Draws the pictures of the README: the top of a report and of a board, as a browser shows them.

python docs/pictures.py    write docs/figures/report.png and docs/figures/board.png; needs chromium
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir
from pathlib import Path

from playwright.sync_api import sync_playwright

from sordino.cli import run

FIGURES = Path(__file__).resolve().parent / "figures"
COMMANDS = (
    "simulate pairs --n 4000 --out prefs.jsonl --truth truth.json",
    "align prefs.jsonl --epsilon 1 --out report --truth truth.json",
    "simulate battles --n 20000 --items 8 --out battles.jsonl",
    "rank battles.jsonl --epsilon 1 --out board",
)


def main() -> None:
    """Run the commands in an empty folder, and draw what they wrote."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), sync_playwright() as browsers:
        for command in COMMANDS:
            if code := run(command.split()):
                raise SystemExit(code)
        browser = browsers.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium")
        )
        for name in ("report", "board"):
            page = browser.new_page(
                viewport={"width": 960, "height": 860 + 135 * (name == "board")}
            )
            page.goto(f"file://{folder}/{name}/report.html")
            page.screenshot(path=FIGURES / f"{name}.png")


if __name__ == "__main__":
    main()
