"""One self-contained page: no script, no font, no image and no address outside itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sordino._files import write_text
from sordino._markup import harmless
from sordino.auditing.findings import Audit
from sordino.certificates import Certificate
from sordino.errors import DataError, UsageError
from sordino.privacy.ledger import Ledger

from .audits import describe_audits
from .figures import (
    bar_values,
    calibration_values,
    curve_values,
    environment,
    interval_values,
    item_values,
    share_values,
)
from .result import describe_ledger_rows
from .summary import summarize
from .wording import SIMULATED, Json

__all__ = ["_render_audit", "render_report", "write_audit", "write_report", "write_sign_off"]


def render_report(summary: Json) -> str:
    """Return the report as one HTML file."""
    # The page loads nothing and runs nothing, follows light and dark mode, and prints. The same
    # summary gives the same bytes.
    if summary.get("format") != "sordino.summary" or summary.get("version") != 1:
        raise DataError("summary must be what summarize returned, version 1.")
    bins = summary["calibration"]
    figures = {"prediction": curve_values, "decisive": bar_values, "worths": item_values}
    drawn = {name: values(summary[name]) for name, values in figures.items() if summary[name]}
    return _page(
        "report.html.j2",
        summary["audits"],
        summary=summary,
        drawn=drawn | {"calibration": calibration_values(bins)},
        clipped=sum(row["low"] < 0 or row["high"] > 1 for row in bins),
    )


def _render_audit(audits: Audit | Sequence[Audit]) -> str:
    """Return one audit or several as one HTML file."""
    # The page loads nothing and runs nothing, follows light and dark mode, and prints. The same
    # audits give the same bytes. If one of them was computed from raw judgments, the page says on
    # top that it is not for publication.
    described = describe_audits(audits)
    if not described:
        raise UsageError("audits must hold at least one audit; no page was made.")
    refuted = sum(each["refuted"] for each in described)
    title = f"{len(described)} audits, {refuted} refuted"
    if untold := sum(each["inconclusive"] for each in described):
        title += f", {untold} that cannot tell"
    if len(described) == 1:
        title = f"Audit: {described[0]['subject']}"
    return _page("audit_page.html.j2", described, title=title, simulated_text=SIMULATED)


def _page(name: str, audits: Sequence[Json], **values: object) -> str:
    """Return a page in which nothing hides and nothing is an address."""
    text = (
        environment()
        .get_template(name)
        .render(
            audits=[_with_figures(audit) for audit in audits],
            refuted=any(audit["refuted"] for audit in audits),
            inconclusive=any(audit["inconclusive"] for audit in audits),
            **values,
        )
    )
    # Names chosen by users may look like addresses; as an entity they read the same.
    return harmless(text).replace("://", ":&#47;&#47;")


def _with_figures(audit: Json) -> dict[str, Any]:
    """Return an audit with its figures, and what has to be said about them."""
    measured, panels = audit["measured"], interval_values(audit)
    rows = [row for panel in panels for row in panel["rows"]]
    return {
        **audit,
        "panels": panels,
        "shares": share_values(audit),
        "breaks_measured": any(row["breaks"] for row in measured),
        "unclear": any(row["beyond"] and not row["breaks"] for row in measured),
        "powered": any(row["power"] for row in rows),
        "open": any(row["open"] for row in rows),
        "logarithmic": any(panel["logarithmic"] for panel in panels),
    }


def write_report(
    path: str | Path,
    certificate: Certificate,
    ledger: Ledger | None = None,
    *,
    audits: Audit | Sequence[Audit] = (),
    force: bool = False,
) -> None:
    """Write one HTML page that says what an artifact promises and what was spent.

    Args:
        path: The page; one file that loads nothing from outside.
        certificate: From :func:`sordino.certify`.
        ledger: The ledger to show; left out, the page has no section on what was spent.
        audits: What was tried against it; left out, the page has no section on that.
        force: Overwrite the page.

    Raises:
        UsageError: The path exists and ``force`` is False.
        FileSystemError: It cannot be written.
    """
    told = certificate.to_dict()
    values = {key: told[key] for key in ("guarantee", "caveats")} | {"data": {"name": told["data"]}}
    shown = None if ledger is None else describe_ledger_rows(ledger)
    summary = summarize(values, ledger=shown, audits=audits)
    write_text(Path(path), render_report(summary), force=force)


def write_sign_off(path: str | Path, told: Json, *, force: bool = False) -> None:
    """Write one HTML page that holds what was released against a policy, with a place to sign."""
    text = _page("sign_off.html.j2", (), told=told, simulated_text=SIMULATED)
    write_text(Path(path), text, force=force)


def write_audit(path: str | Path, audit: Audit | Sequence[Audit], *, force: bool = False) -> None:
    """Write one HTML page that says what was claimed, what was measured, and what broke it."""
    write_text(Path(path), _render_audit(audit), force=force)
