"""``sordino plan``: a policy for every step and state whose worst case is best."""

from __future__ import annotations

from sordino.runs.plan_run import Planning, prepare

from ._app import app, command, tell


@command(app, Planning)
def plan(settings: Planning) -> None:
    """Plan by compared trajectories or a released reward, pessimistically, with a certificate."""
    run = prepare(settings)
    tell(run.settings, *run.outcome())
