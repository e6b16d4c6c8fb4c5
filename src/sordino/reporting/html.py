"""One self-contained page: no script, no font, no image and no address outside itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino._files import write_text
from sordino._markup import harmless
from sordino.certificates import Certificate
from sordino.errors import DataError
from sordino.privacy.ledger import Ledger
from sordino.reporting._numbers import percent, plain
from sordino.reporting._templates import environment
from sordino.reporting.figures import draw_choices, draw_figures
from sordino.reporting.result import describe_ledger_rows
from sordino.reporting.summary import summarize

__all__ = ["render_report", "write_report"]

_LATER = ("fit", "prediction", "decisive", "confidence", "examples")  # absent in early summaries


def render_report(summary: Mapping[str, Any]) -> str:
    """Return the report as one HTML file.

    The page loads nothing and runs nothing, follows light and dark mode, and prints. The same
    summary gives the same bytes.

    Args:
        summary: What ``summarize`` returned.

    Raises:
        DataError: The summary is of another format or of a newer version.
    """
    if summary.get("format") != "sordino.summary" or summary.get("version") != 1:
        raise DataError("summary must be what summarize returned, version 1.")
    page = environment().get_template("report.html.j2")
    summary = {**dict.fromkeys(_LATER), **summary}
    text = page.render(
        summary=summary,
        figures=draw_figures(summary),
        choices=draw_choices(summary),
        clipped=_clipped(summary["calibration"]),
        bins=[_row(row) for row in summary["calibration"]],
    )
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
    force: bool = False,
) -> None:
    """Write one HTML page that says what an artifact promises and what was spent.

    Args:
        path: The page; one file that loads nothing from outside.
        certificate: From :func:`sordino.certify`.
        ledger: The ledger to show; left out, the page has no section on what was spent.
        force: Overwrite the page.

    Raises:
        UsageError: The path exists and ``force`` is False.
        FileSystemError: It cannot be written.
    """
    told = certificate.to_dict()
    values = {key: told[key] for key in ("guarantee", "caveats")} | {"data": {"name": told["data"]}}
    shown = None if ledger is None else describe_ledger_rows(ledger)
    write_text(Path(path), render_report(summarize(values, ledger=shown)), force=force)
