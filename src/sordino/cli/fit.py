"""``sordino fit``: a reward from a privatized file; it spends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino._files import refuse_output
from sordino.cli import _options as options
from sordino.cli._app import app
from sordino.errors import PrivacyError
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs, read_pairs
from sordino.reporting.result import describe_guarantee_and_caveats, measure_reward
from sordino.rewards.answer_fit import BALL, METHODS, cross_fit
from sordino.rewards.estimation import fit_answers
from sordino.rewards.evidence import refuse_too_few

from ._answer_files import fit_files
from ._app import Bar, finish
from ._options import Address, EngineOption, Place, Scratch
from ._tables import describe_accuracy, describe_promise


@app.command()
def fit(
    answers: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="Privatized file with its manifest beside it; or many, or folders of them.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Reward to write (.json).")],
    dimension: options.Dimension = 512,
    method: options.Method = "auto",
    ball: options.Ball = BALL,
    ridge: options.Ridge = None,
    person_field: options.PersonField = "person",
    drop_identical: options.DropIdentical = False,
    engine: EngineOption = None,
    address: Address = None,
    scratch: Scratch = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a reward on answers that are randomized already."""
    refuse_output(out, force=force)
    _validate.workable("--ball", ball)
    _validate.one_of("--method", method, METHODS)
    if ridge is not None:
        _validate.workable("--ridge", ridge)
    reading: Any = {"drop_identical": drop_identical, "person_field": person_field}
    place = Place(kind=engine, address=address, scratch=scratch)
    if place.reads(answers):
        terms: Any = {"dimension": dimension, "method": method, "force": force, "as_json": as_json}
        fitted = {"ridge": ridge, "ball": ball}
        fit_files(answers, out, place=place, reading=reading, asked=fitted, **terms)
        return
    (source,) = answers
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(source, progress=bar, **reading)
    if isinstance(pairs, Pairs):
        raise PrivacyError(
            "These are raw judgments; a reward fitted on them would give them away. Nothing was "
            "fitted. Randomize them first with `sordino privatize`, or use `sordino align`."
        )
    refuse_too_few(pairs)
    features = HashedText(dimension=dimension)
    asked: dict[str, Any] = {"ridge": ridge, "ball": ball, "method": method}
    reward, design = fit_answers(pairs, features=features, **asked)
    measured = measure_reward(cross_fit(design, **asked))
    reward.save(out, force=force)
    promise = pairs.guarantee
    value = {**describe_guarantee_and_caveats(promise), "reward": measured}
    rows = {
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(promise.caveats) or "none",
        "accuracy": describe_accuracy(measured),
        "written": out.name,
    }
    finish("sordino fit", rows, value, as_json=as_json, simulated=promise.simulated)
