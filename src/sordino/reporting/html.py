"""One self-contained page: no script, no font, no image and no address outside itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sordino._files import write_text
from sordino._markup import harmless
from sordino.auditing.findings import Audit
from sordino.certificates import Certificate
from sordino.errors import DataError, UsageError
from sordino.privacy.ledger import Ledger
from sordino.reporting.audits import describe_audits, title_of
from sordino.reporting.figures import draw_choices, draw_figures
from sordino.reporting.result import describe_ledger_rows
from sordino.reporting.summary import summarize
from sordino.reporting.wording import SIMULATED

from .audit_figures import interval_values, share_values
from .figures import environment
from .summary import item_values
from .wording import percent, plain

__all__ = ["render_audit", "render_report", "write_audit", "write_report"]

_Plain = Mapping[str, Any]

_LATER = (  # absent in early summaries
    "fit",
    "mechanism",
    "prediction",
    "decisive",
    "confidence",
    "examples",
    "audits",
    "rankings",
    "ballots",
    "worths",
)


def render_report(summary: Mapping[str, Any]) -> str:
    """Return the report as one HTML file."""
    # The page loads nothing and runs nothing, follows light and dark mode, and prints. The same
    # summary gives the same bytes.
    if summary.get("format") != "sordino.summary" or summary.get("version") != 1:
        raise DataError("summary must be what summarize returned, version 1.")
    page = environment().get_template("report.html.j2")
    summary = {**dict.fromkeys(_LATER), **summary}
    text = page.render(
        summary=summary,
        figures=draw_figures(summary),
        choices=draw_choices(summary),
        worths=item_values(summary["worths"]) if summary["worths"] else None,
        clipped=_clipped(summary["calibration"]),
        bins=[_row(row) for row in summary["calibration"]],
        **_audit_parts(summary["audits"] or ()),
    )
    return _inert(text)


def render_audit(audits: Audit | Sequence[Audit]) -> str:
    """Return one audit or several as one HTML file."""
    # The page loads nothing and runs nothing, follows light and dark mode, and prints. The same
    # audits give the same bytes. If one of them was computed from raw judgments, the page says on
    # top that it is not for publication.
    described = describe_audits(audits)
    if not described:
        raise UsageError("audits must hold at least one audit; no page was made.")
    page = environment().get_template("audit_page.html.j2")
    parts = _audit_parts(described)
    return _inert(page.render(title=title_of(described), simulated_text=SIMULATED, **parts))


def _audit_parts(audits: Sequence[_Plain]) -> dict[str, Any]:
    """Return what the templates need of audits that ``describe_audits`` returned."""
    return {
        "audits": [_with_figures(audit) for audit in audits],
        "refuted": any(audit["refuted"] for audit in audits),
    }


def _with_figures(audit: _Plain) -> dict[str, Any]:
    """Return an audit with its figures, and what has to be said about them."""
    measured, panels = audit["measured"], interval_values(audit)
    return {
        **audit,
        "panels": panels,
        "shares": share_values(audit),
        "breaks_measured": any(row["breaks"] for row in measured),
        "unclear": any(row["beyond"] and not row["breaks"] for row in measured),
        "powered": any(row["power"] for panel in panels for row in panel["rows"]),
        "open": any(row["open"] for panel in panels for row in panel["rows"]),
        "logarithmic": any(panel["logarithmic"] for panel in panels),
    }


def _inert(text: str) -> str:
    """Return a page in which nothing hides and nothing is an address."""
    # Names chosen by users may look like addresses; as an entity they read the same.
    return harmless(text).replace("://", ":&#47;&#47;")


def _clipped(bins: list[Mapping[str, Any]]) -> int:
    """Return how many groups the calibration plot cannot show in full."""
    return sum(row["low"] < 0 or row["high"] > 1 for row in bins)


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    """Return one calibration group as the page's table shows it."""
    return {
        "predicted": percent(row["predicted"]),
        "observed": percent(row["observed"]),
        "interval": f"{percent(row['low'])} to {percent(row['high'])}",
        "pairs": "—" if row["pairs"] is None else plain(row["pairs"], 9),
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


def write_audit(path: str | Path, audit: Audit | Sequence[Audit], *, force: bool = False) -> None:
    """Write one HTML page that says what was claimed, what was measured, and what broke it."""
    write_text(Path(path), render_audit(audit), force=force)
