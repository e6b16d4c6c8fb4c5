"""``sordino online``: learn what people want while asking them, answers randomized one by one."""

from __future__ import annotations

from sordino.runs.online_run import Online, prepare

from ._app import app, command, tell


@command(app, Online)
def online(settings: Online) -> None:
    """Learn a reward round by round, from randomized answers that decide what is asked next."""
    run = prepare(settings)
    tell(run.settings, *run.outcome())
