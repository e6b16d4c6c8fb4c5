"""``sordino rank``: a private leaderboard, from votes to ranks with intervals."""

from __future__ import annotations

from sordino.runs.rank_run import Rank, prepare

from ._app import app, command, tell


@command(app, Rank)
def rank(settings: Rank) -> None:
    """Rate and rank what was voted on, privately, with intervals, ledger and report."""
    run = prepare(settings)
    tell(run.settings, *run.outcome())
