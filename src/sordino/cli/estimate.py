"""``sordino estimate``: what a privacy loss will cost, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sordino.reporting.curves import describe_forecast, refuse_plot, write_curves
from sordino.rewards import forecast
from sordino.runs.settings import DELTA, Option, Output, terms_of

from . import app, command, finish


@dataclass(frozen=True, kw_only=True)
class Estimate(Output):
    """What is asked about numbers that are public."""

    n: int = Option("Number of labels.", required=True)
    epsilon: float = Option("Privacy loss of one label.", required=True)
    dimension: int = Option(
        "Number of directions in which answers differ alike; text features of `align` teach "
        "as much as about 12.",
        12,
    )
    delta: float = Option("Failure probability allowed; noise on labels needs none.", DELTA)
    accuracy: float = Option("ASSUMED share of judgments that the true reward predicts.", 0.65)
    target: float | None = Option("Accuracy to reach: how many labels does it need?")
    out: Path | None = Option("Picture to write (.svg).", metavar="PLOT")


@command(app, Estimate)
def estimate(settings: Estimate) -> None:
    """Foresee accuracy and cost from public numbers only; no data are read, nothing is spent."""
    out = settings.out
    if out is not None:
        refuse_plot(out, force=settings.force)
    foreseen = terms_of(settings, forecast.estimate)
    rows = describe_forecast(foreseen)
    if out is not None:
        write_curves(out, foreseen, force=settings.force)
        rows["written"] = out.name
    finish("sordino estimate", rows, foreseen.to_dict(), as_json=settings.as_json)
