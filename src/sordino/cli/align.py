"""``sordino align``: the main job, from a preference file to a private policy."""

from __future__ import annotations

import math
from pathlib import Path

from sordino import _random
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.chunks import find_chunks
from sordino.preferences.containers import files_of
from sordino.preferences.pairs import Pairs, PrivatePairs, read_pairs
from sordino.preferences.ranking_files import holds_rankings, read_rankings
from sordino.privacy.guarantee import PUBLIC_OVERLAP, UNDECIDED, NeighboringRelation
from sordino.rewards.evidence import refuse_too_few
from sordino.runs.align_run import AlignRun, Inputs
from sordino.runs.align_settings import Align, NoiseOn
from sordino.runs.progress import Bar
from sordino.runs.run import refuse_randomized
from sordino.runs.settings import Unit, is_large, named_option, refuse_given

from ._app import app, command, tell


@command(app, Align)
def align(settings: Align) -> None:
    """Learn a private reward and policy from judgments, with ledger and report."""
    started = _random.clock()
    run = _run(settings, _inputs(settings), started)
    tell(run.settings, *run.outcome())


def _run(settings: Align, inputs: Inputs, started: float) -> AlignRun:
    """Return the run of the noise that was asked for; the others are not even imported."""
    if settings.noise is NoiseOn.estimate:
        from sordino.runs.align_estimate import noised_estimate  # noqa: PLC0415

        return noised_estimate(settings, inputs, started)
    if settings.noise is NoiseOn.draws:
        from sordino.runs.align_draws import DrawNoise  # noqa: PLC0415

        return DrawNoise(settings=settings, inputs=inputs, started=started)
    from sordino.runs.align_labels import LabelNoise  # noqa: PLC0415

    return LabelNoise(settings=settings, inputs=inputs, started=started)


def _inputs(settings: Align) -> Inputs:
    offers = {"--all-offered": settings.all_offered, "--named-offered": settings.named_offered}
    if _reads_chunks(settings):
        refuse_given(offers, "only a file of ballots over items has items to offer")
        if settings.noise is not NoiseOn.estimate:
            raise UsageError(
                f"--noise {settings.noise} reads texts into memory; vectors, and files that are "
                "read in pieces (--engine), are for --noise estimate. Nothing was done. Use that; "
                "or randomize them with `sordino privatize` and fit them with `sordino fit`."
            )
        if settings.hides_texts and settings.metrics_epsilon is not None:
            raise UsageError(
                "--metrics-epsilon with --unit record reads one file into memory; these are read "
                "in pieces. Nothing was done. Leave it out."
            )
        if settings.unit is Unit.person and settings.cap is None:
            raise UsageError(
                "--unit person over many files needs --cap: how many labels of one person count. "
                "Nothing was done."
            )
        refuse_given(
            {"--evaluate": settings.evaluate, "--truth": settings.truth},
            "a reward of files that are read in pieces is held against public ones in memory",
        )
        chunks = find_chunks(
            settings.prefs,
            hides_records=settings.hides_texts,
            **settings.reading,
        )
        return Inputs(data=chunks)
    source = settings.prefs[0] if len(settings.prefs) == 1 else settings.prefs
    if holds_rankings(source):
        if settings.noise is not NoiseOn.estimate:
            raise UsageError(
                f"These are rankings, which --noise {settings.noise} has no command for. Nothing "
                "was done. Use --noise estimate; first choices are randomized one by one by "
                "privatize_choices in Python."
            )
        given = {
            "--evaluate": settings.evaluate,
            "--truth": settings.truth,
            "--metrics-epsilon": settings.metrics_epsilon,
            "--second-moment": settings.second_moment,
            "--confidence": settings.confidence,
        }
        refuse_given(given, "it is for pairs, and these are rankings")
        with Bar.shown("Reading") as bar:
            ballots = read_rankings(
                source,
                columns=settings.reading["columns"],
                person_field=settings.reading["person_field"],
                offered=settings.offered,
                hides_records=settings.hides_texts,
                progress=bar,
            )
        return Inputs(data=ballots)
    refuse_given(offers, "only ballots over items have items to offer, and these are pairs")
    return _pairs(settings, source)


def _reads_chunks(settings: Align) -> bool:
    """Return whether judgments are read in pieces, by what is public of them."""
    if settings.noise is NoiseOn.estimate or settings.engine is not None:
        hidden = settings.relation is NeighboringRelation.ADD_OR_REMOVE_ONE
        return (
            settings.reads_chunks(settings.prefs, most=0)
            if hidden
            else settings.reads_chunks(settings.prefs)
        )
    tables = [path for path in files_of(settings.prefs) if path.suffix.lower() == ".parquet"]
    return any(is_large(path, math.inf) for path in tables)


def _pairs(settings: Align, source: Path | list[Path]) -> Inputs:
    evaluate, truth = settings.evaluate, settings.truth
    if settings.noise is NoiseOn.draws:
        for name, path in {"--evaluate": evaluate, "--truth": truth}.items():
            if path is not None:
                raise UsageError(
                    f"{name} measures a reward, and with --noise draws it is withheld. Nothing "
                    "was done. Leave it out."
                )
    with Bar.shown("Reading") as bar:
        pairs = read_pairs(
            source,
            **settings.reading,
            hides_records=settings.hides_texts,
            progress=bar,
        )
    if settings.noise is NoiseOn.labels:
        refuse_too_few(pairs)
    else:
        refuse_randomized(pairs)
    if truth is not None and evaluate is None and settings.hides_texts:
        raise UsageError(
            "--truth compares the policy with the truth on the prompts of the data, which --unit "
            "record protects. Nothing was done. Give public ones: --evaluate PUBLIC."
        )
    public, shares = (None, False) if evaluate is None else _public(evaluate, pairs, settings)
    return Inputs(
        data=pairs,
        public=public,
        shares=shares,
        truth=None if truth is None else TrueReward.load(truth),
        source=source if isinstance(source, Path) else None,
    )


def _public(path: Path, pairs: Pairs | PrivatePairs, settings: Align) -> tuple[Pairs, bool]:
    """Return judgments that the user declares public, and whether it shares private questions."""
    # Those are left out. Where it is private too which questions are in the private file, they
    # stay, and nothing is refused for them: either would tell. Public labels are the user's word.
    with named_option("--evaluate"):
        drop = {*settings.reading["drop"], "identical"}
        public = read_pairs(path, **settings.reading | {"drop": drop})
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set() if settings.hides_texts else set(pairs.keys)
    if shares := not private.isdisjoint(public.keys):
        if not settings.accept_weak:
            raise PrivacyError(
                "--evaluate was declared public, and questions in it are in the private file too: "
                "it may hold the private judgments themselves. Nothing was done. Give a file of "
                "other questions; or say --accept-weak, which leaves the shared ones out, and the "
                f"caveat {PUBLIC_OVERLAP} stays with the result."
            )
        public = public.without(private)
    if (public.labels == UNDECIDED).all():
        raise DataError("--evaluate: no decided judgment is left in it. Nothing was spent.")
    return public, shares
