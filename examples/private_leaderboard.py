"""A leaderboard of simulated models, private for every person, that goes on for three weeks.

Every week other people vote, and each of them is promised ε = 8 for all of their votes together.
Writes ``board.html``, a page with ratings, ranges of ranks and their history.
"""

# ruff: noqa: INP001, T201 (a script that prints)

from pathlib import Path

import sordino
from sordino.environments.annotators import simulate_battles


def main() -> None:
    """Vote, rank, and rank again."""
    earlier: dict[str, str] = {}
    for week in range(3):
        rows, _ = simulate_battles(6_000, seed=0, items=8, people=1_500)
        apart = ("question_id", "person")  # other people are asked other questions
        votes = [row | {name: f"{week} {row[name]}" for name in apart} for row in rows]
        terms = {"epsilon": 8, "unit": "person", "ledger": "board.db", "out": f"week-{week}"}
        board = sordino.rank(votes, **terms, **earlier)
        earlier = {"update": f"week-{week}"}
        print(f"week {week}: {board.guarantee}")
        for at in board.order[:3]:
            low, high = board.ranks[at]
            print(f"  {board.items[at]}: rank {low} to {high}, {board.points[at]:.0f} points")
        Path("board.html").write_text(board.report, encoding="utf-8")


if __name__ == "__main__":
    main()
