"""``sordino plan``: a policy for every step and state whose worst case is best."""

from __future__ import annotations

from sordino.runs.plan_run import Planning, prepare

from ._app import run_command

run_command("plan", Planning, prepare)
