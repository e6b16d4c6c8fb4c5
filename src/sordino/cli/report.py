"""``sordino report``: draw the page of an earlier run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sordino._files import refuse_output, write_json, write_text
from sordino.auditing.runs.replay import RESULT, audit_run, malformed, read_result
from sordino.errors import AuditRefuted
from sordino.language.models.promises import CERTIFICATE_FILE, certify_checkpoint, is_checkpoint
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_of_run
from sordino.reporting.html import write_report
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.runs.align_run import page
from sordino.runs.settings import Argument, Option, Output, RunLedger
from sordino.runs.tables import promise_rows

from . import app, command, finish

_PAGE = "report.html"


@dataclass(frozen=True, kw_only=True)
class Report(Output):
    """Which run, and where its page goes."""

    folder: Path = Argument("Folder of an earlier run, or of a checkpoint.", metavar="RUN")
    out: Path | None = Option("Page to write; RUN/report.html by default.", metavar="FILE")
    ledger: RunLedger = None


@command(app, Report)
def report(settings: Report) -> None:
    """Write the report of a run again, with its ledger as it stands now; certify a checkpoint."""
    folder = settings.folder
    target, path = settings.out or folder / _PAGE, settings.ledger or ledger_of_run(folder)
    if is_checkpoint(folder) and not (folder / RESULT).is_file():
        refuse_output(target, force=settings.force)
        signed, file = certify_checkpoint(folder, path), folder / CERTIFICATE_FILE
        write_json(file, signed.to_dict(), force=True)  # it says no more than its own ledger
        about = Ledger.read(path).about(signed.data).counting(signed.guarantee.unit)
        write_report(target, signed, about, force=settings.force)
        terms = describe_guarantee_and_caveats(signed.guarantee)
        rows = {**promise_rows(terms), "certificate": CERTIFICATE_FILE, "written": str(target)}
        value = {**terms, "certificate": signed.to_dict(), "report": target.name}
        simulated = signed.guarantee.simulated
        finish("sordino report", rows, value, as_json=settings.as_json, simulated=simulated)
        return
    result = read_result(folder)
    with malformed(RESULT):
        head = str(result["certificate"]["ledger"]["head"])
        data = str(result["certificate"]["data"])
        simulated = result["guarantee"]["randomness"] == "simulated"
        unit = Guarantee.from_dict(result["guarantee"]).unit
    account = Ledger.read(path, expected_head=head)
    account = account.about(data).counting(unit)
    said = [f for f in audit_run(folder, ledger=path).findings if f.outcome == "refutes"]
    if wrong := [each.summary for each in said if each.attack != "report"]:  # which is drawn anew
        raise AuditRefuted(f"{folder.name} contradicts its ledger. No page was written. {wrong[0]}")
    with malformed(RESULT):
        text = page(result, account)
    write_text(target, text, force=settings.force)
    rows, value = {"written": str(target)}, {"report": target.name}
    finish("sordino report", rows, value, as_json=settings.as_json, simulated=simulated)
