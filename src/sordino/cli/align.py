"""``sordino align``: the main job, from a preference file to a private policy."""

from __future__ import annotations

from sordino.runs.align_settings import Align
from sordino.runs.alignment import prepare

from ._app import run_command

run_command("align", Align, prepare)
