"""``sordino optimize``: a policy improved batch by batch, on users of a file or of a world."""

from __future__ import annotations

from sordino.runs.optimize_run import Optimize, prepare

from ._app import run_command

run_command("optimize", Optimize, prepare)
