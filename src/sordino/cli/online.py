"""``sordino online``: learn what people want while asking them, answers randomized one by one."""

from __future__ import annotations

from sordino.runs.online_run import Online, prepare

from ._app import run_command

run_command("online", Online, prepare)
