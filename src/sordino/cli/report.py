"""``sordino report``: draw the page of an earlier run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sordino._files import write_text
from sordino.auditing.runs.replay import RESULT, malformed, read_result
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_of_run
from sordino.runs.align_run import page
from sordino.runs.settings import Argument, Option, Output, RunLedger

from ._app import app, command, finish


@dataclass(frozen=True, kw_only=True)
class Report(Output):
    """Which run, and where its page goes."""

    folder: Path = Argument("Folder of an earlier align.", metavar="RUN")
    out: Path | None = Option("Page to write; RUN/report.html by default.", metavar="FILE")
    ledger: RunLedger = None


@command(app, Report)
def report(settings: Report) -> None:
    """Write the report of a run again, with its ledger as it stands now."""
    folder = settings.folder
    result = read_result(folder)
    with malformed(RESULT):
        head = str(result["certificate"]["ledger"]["head"])
        data = str(result["certificate"]["data"])
        simulated = result["guarantee"]["randomness"] == "simulated"
        unit = Guarantee.from_dict(result["guarantee"]).unit
    account = Ledger.read(settings.ledger or ledger_of_run(folder), expected_head=head)
    account = account.about(data).counting(unit)
    with malformed(RESULT):
        text = page(result, account)
    target = settings.out or folder / "report.html"
    write_text(target, text, force=settings.force)
    rows, value = {"written": str(target)}, {"report": target.name}
    finish("sordino report", rows, value, as_json=settings.as_json, simulated=simulated)
