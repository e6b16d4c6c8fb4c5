"""``sordino rank``: a private leaderboard, from votes to ranks with intervals."""

from __future__ import annotations

from sordino.runs.rank_run import Rank, prepare

from ._app import run_command

run_command("rank", Rank, prepare)
