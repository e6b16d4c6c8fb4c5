"""``sordino optimize``: a policy improved batch by batch, on users of a file or of a world."""

from __future__ import annotations

from sordino.runs.optimize_run import Optimize, prepare

from ._app import app, command, tell


@command(app, Optimize)
def optimize(settings: Optimize) -> None:
    """Improve a policy batch by batch, each update private; with ledger, resume and report."""
    run = prepare(settings)
    tell(run.settings, *run.outcome())
