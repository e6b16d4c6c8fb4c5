"""``sordino estimate``: what a privacy loss will cost, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.reporting.curves import describe_forecast, refuse_plot, write_curves
from sordino.rewards import forecast as planning

from ._app import finish


@app.command()
def estimate(
    n: Annotated[int, typer.Option("--n", help="Number of labels.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss of one label.")],
    dimension: Annotated[
        int,
        typer.Option(
            "--dimension",
            help="Number of directions in which answers differ alike; text features of `align` "
            "teach as much as about 12.",
        ),
    ] = 12,
    delta: Annotated[
        float,
        typer.Option("--delta", help="Failure probability allowed; noise on labels needs none."),
    ] = 1e-6,
    accuracy: Annotated[
        float,
        typer.Option(
            "--accuracy", help="ASSUMED share of judgments that the true reward predicts."
        ),
    ] = 0.65,
    target: Annotated[
        float | None,
        typer.Option("--target", help="Accuracy to reach: how many labels does it need?"),
    ] = None,
    labels_per_person: Annotated[
        int | None,
        typer.Option("--labels-per-person", help="What do so many labels of one person cost?"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PLOT", help="Picture to write (.svg, .png or .pdf)."),
    ] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Foresee accuracy and cost from public numbers only; no data are read, nothing is spent."""
    if out is not None:
        refuse_plot(out, force=force)
    found = planning.estimate(
        n,
        dimension=dimension,
        epsilon=epsilon,
        delta=delta,
        accuracy=accuracy,
        target=target,
        labels_per_person=labels_per_person,
    )
    rows = describe_forecast(found)
    if out is not None:
        write_curves(out, found, force=force)
        rows["written"] = out.name
    finish("sordino estimate", rows, found.to_dict(), as_json=as_json)
