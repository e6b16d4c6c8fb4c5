"""``sordino align``: the main job, from a preference file to a private policy."""

from __future__ import annotations

from sordino.runs.align_settings import Align
from sordino.runs.alignment import prepare

from ._app import app, command, tell


@command(app, Align)
def align(settings: Align) -> None:
    """Learn a private reward and policy from judgments, with ledger and report."""
    run = prepare(settings)
    tell(run.settings, *run.outcome())
