"""``sordino report``: draw the page of an earlier run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino._files import write_text
from sordino.auditing.runs.stored import RESULT, malformed, read_result
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.privacy.ledger import Ledger

from ._align_run import page
from ._app import finish


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier align.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Page to write; RUN/report.html by default."),
    ] = None,
    ledger: options.LedgerPath = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the report of a run again, with its ledger as it stands now."""
    result = read_result(folder)
    with malformed(RESULT):
        head = str(result["certificate"]["ledger"]["head"])
        simulated = result["guarantee"]["randomness"] == "simulated"
    account = Ledger.read(ledger or folder / "spend.db", expected_head=head)
    with malformed(RESULT):
        text = page(result, account)
    target = out or folder / "report.html"
    write_text(target, text, force=force)
    rows, value = {"written": str(target)}, {"report": target.name}
    finish("sordino report", rows, value, as_json=as_json, simulated=simulated)
