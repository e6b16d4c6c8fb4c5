"""The main job, from preference judgments to a private reward and policy, as one call.

``sordino align`` and :func:`sordino.align` are the same run; the one shows itself on a terminal and
in a folder, the other is an object.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import EnumType
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import numpy as np

from sordino import _random, _validate
from sordino._markup import card
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.randomized_response import label_shares
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.chunks import Chunks, find_chunks, judgments
from sordino.preferences.comparisons import warn_swapped
from sordino.preferences.containers import files_of
from sordino.preferences.features import Features, Intercept, Matrix, usable_bound
from sordino.preferences.files import kind_of, rating_of
from sordino.preferences.pairs import Pairs, PrivatePairs, read_pairs
from sordino.preferences.rankings import BALLOTS, PrivateChoices, Rankings, Slates
from sordino.preferences.records import Absent
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import (
    PUBLIC_OVERLAP,
    UNDECIDED,
    Guarantee,
    NeighboringRelation,
    size,
)
from sordino.privacy.ledger import Ledger
from sordino.rewards.evidence import refuse_too_few
from sordino.rewards.model import RewardModel
from sordino.rewards.noise_forecast import ROWS, Signal, narrowed, population_rows

from .align_run import AlignRun, Inputs, remake_policy
from .align_settings import Align
from .run import FolderRun, made_folder, publish, quiet, refuse_randomized
from .settings import (
    FEW_ROWS,
    IntoFolder,
    Unit,
    declared,
    is_large,
    named_option,
    refuse_given,
    refuse_options,
    reworded,
)
from .tables import closing_rows, shortened, verdict_rows

S = TypeVar("S", bound=IntoFolder)
_NOT_OF_A_CALL = {"prefs", "votes", "out", "ledger", "as_json", "dry_run"}
_BY_CURATOR = ("estimate", "auto")  # what rankings and files in pieces go to
_HALF = 0.5
_TRUSTLESS = 0.002  # accuracy that nobody having to be trusted is worth
_FLAG = re.compile(r"--([a-z][a-z-]*)")


@dataclass(frozen=True, kw_only=True, repr=False)
class Outcome:
    """What one call of a whole run made, with its promise and its files."""

    result: Mapping[str, Any]
    files: Mapping[str, str]
    ledger: Ledger

    @property
    def guarantee(self) -> Guarantee:
        """Return what all of it promises together; of withheld draws, what they may spend."""
        return Guarantee.from_dict(self.result["guarantee"], self.result["caveats"])

    @property
    def report(self) -> str:
        """Return the page that shows it, as HTML; of withheld draws there is none yet."""
        return self.files.get("report.html", "")

    def _repr_html_(self) -> str:
        rows = verdict_rows(self.result)
        rows |= closing_rows(self.result, None) if "certificate" in self.result else {}
        return card(type(self).__name__, rows.items(), simulated=self.guarantee.simulated)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the folder that the command writes; only by ``force`` over what is there."""
        with made_folder(Path(folder)):
            publish(Path(folder), self.files, force=force)


@dataclass(frozen=True, kw_only=True, repr=False)
class Aligned(Outcome):
    """What one call of :func:`sordino.align` made: a private reward and policy, and their promise.

    It holds what the command writes into its folder, and :meth:`save` writes just that.

    Attributes:
        result: Everything that is told, as ``result.json`` holds it.
        files: Every file by its name: ``result.json``, and of what was released ``reward.json``
            and ``report.html``.
        ledger: The ledger that paid.

    Example:
        >>> import sordino, tempfile
        >>> rows, _ = sordino.simulate_pairs(400, seed=0)
        >>> ledger = f"{tempfile.mkdtemp()}/spend.db"
        >>> found = sordino.align(list(rows), epsilon=2, ledger=ledger, simulate_seed=0)
        >>> found
        Aligned(noise='labels', usable, epsilon=2, delta=0)
        >>> found.policy.probabilities(["Hi"], [["Hello there!", "No."]])[0].shape
        (2,)
    """

    @cached_property
    def reward(self) -> RewardModel:
        """Return the private reward, of which all use is free.

        Raises:
            PrivacyError: The noise is in the draws, and the reward is withheld.
        """
        if "reward.json" not in self.files:
            raise PrivacyError(
                "With noise on draws the reward is withheld, and there is none to use. Nothing was "
                "released. Save this, and draw with: sordino choose FOLDER PROMPTS --judgments "
                'DATA; or use noise="labels" or noise="estimate".'
            )
        return RewardModel.from_dict(json.loads(self.files["reward.json"]))

    @property
    def policy(self) -> CandidatePolicy:
        """Return the policy made of the reward, of which every draw is free."""
        return remake_policy(self.reward, self.result["policy"], temperature=None)

    @property
    def metrics(self) -> dict[str, Any]:
        """Return what is known of how good it is, as far as that was free or bought."""
        told = {name: self.result.get(name) or {} for name in ("reward", "policy")}
        apart = {"public_evaluation", "truth"} & self.result.keys()
        return {**told["reward"], **told["policy"], **{name: self.result[name] for name in apart}}

    def __repr__(self) -> str:
        promise, word = self.guarantee, self.result["verdict"]["word"]
        return f"Aligned(noise={self.result['noise']!r}, {word}, {size(promise)})"


def _inputs(settings: Align) -> Inputs:
    offers = ("all_offered", "named_offered")
    source = settings.prefs[0] if len(settings.prefs) == 1 else settings.prefs
    memory = settings.engine is None  # of these kinds, however many files
    rankings = memory and kind_of(source) in BALLOTS.judges
    if (
        _reads_chunks(settings)
        and not rankings
        and not (memory and settings.holds_trajectories(source))
    ):
        why = "only a file of ballots over items has items to offer"
        refuse_options(settings, why, *offers)
        _refuse_unsuited(settings.noise, Chunks)
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
        why = "a reward of files that are read in pieces is held against public ones in memory"
        refuse_options(settings, why, "evaluate", "truth")
        chunks = find_chunks(
            settings.prefs, hides_records=settings.hides_texts, **settings.reading_in_chunks
        )
        return Inputs(data=chunks)
    if rankings:
        return _rankings(settings, source)
    why = "only ballots over items have items to offer, and these are pairs"
    refuse_options(settings, why, *offers)
    return _pairs(settings, source)


def _reads_chunks(settings: Align) -> bool:
    """Return whether judgments are read in pieces, by what is public of them."""
    if settings.noise == "estimate" or settings.engine is not None:
        hidden = settings.relation is NeighboringRelation.ADD_OR_REMOVE_ONE
        return settings.reads_chunks(settings.prefs, most=-1 if hidden else FEW_ROWS)
    tables = [path for path in files_of(settings.prefs) if path.suffix.lower() == ".parquet"]
    return any(is_large(path, math.inf) for path in tables)


def _refuse_unsuited(noise: str, kind: type) -> None:
    """Refuse a kind of noise that judgments of this kind have no command for."""
    if noise in _BY_CURATOR:
        return
    if kind is Chunks:
        raise UsageError(
            f"--noise {noise} reads texts into memory; vectors, and files that are "
            "read in pieces (--engine), are for --noise estimate. Nothing was done. Use that; "
            "or randomize them with `sordino privatize` and fit them with `sordino fit`."
        )
    if kind is Rankings and noise == "draws":
        raise UsageError(
            "These are rankings, of which no bound is known for --noise draws. Nothing was done. "
            "Use --noise estimate; or --noise labels, which randomizes first choices."
        )


def _refuse_unfit(noise: str, pairs: Pairs | PrivatePairs) -> None:
    """Refuse pairs that are too few for this kind of noise, or randomized already."""
    if noise == "labels":
        refuse_too_few(pairs)
    else:
        refuse_randomized(pairs)


def _rankings(settings: Align, source: Path | list[Path] | Rankings | PrivateChoices) -> Inputs:
    """Return rankings, for the one kind of noise that has a command for them."""
    _refuse_unsuited(settings.noise, Rankings)
    measured = ("evaluate", "truth", "metrics_epsilon", "second_moment", "confidence")
    why = "it is for pairs, and these are rankings"
    refuse_options(settings, why, *measured, "scratch")
    _refuse_steps(settings, "it is for trajectories, and these are rankings")
    refuse_given({"--class": settings.candidates}, why)
    if settings.noise == "labels":
        once = "with --noise labels one first choice of every ballot counts"
        refuse_options(settings, once, "cap")
        if settings.method != "auto":
            refuse_options(settings, why, "method")
    if isinstance(source, Slates):
        return Inputs(data=source)
    ballots = settings.read_ballots(source)
    if settings.noise not in {"labels", "auto"}:
        refuse_randomized(ballots)
    return Inputs(data=ballots, source=source if isinstance(source, Path) else None)


def _pairs(settings: Align, source: object) -> Inputs:
    """Return pairs of a file or of whatever else holds them, and public ones to measure on."""
    evaluate, truth = settings.evaluate, settings.truth
    steps = source if isinstance(source, Trajectories) else None
    if isinstance(source, Trajectories | Pairs | PrivatePairs):
        _refuse_steps(settings, "it says how a file of trajectories is read")
    if isinstance(source, Pairs | PrivatePairs):
        pairs: Pairs | PrivatePairs = source
    elif steps is not None or settings.holds_trajectories(source):
        steps = steps or _trajectories(settings, source)
        pairs = steps.pairs
    else:
        pairs = settings.read(source, hides_records=settings.hides_texts)
    if not settings.hides_texts:
        warn_swapped(pairs)
    if settings.noise != "auto":
        _refuse_unfit(settings.noise, pairs)
    if truth is not None and evaluate is None and settings.hides_texts:
        raise UsageError(
            "--truth compares the policy with the truth on the prompts of the data, which --unit "
            "record protects. Nothing was done. Give public ones: --evaluate PUBLIC."
        )
    public, shares = (None, False) if evaluate is None else _public(evaluate, pairs, settings)
    return Inputs(
        data=pairs,
        steps=steps,
        public=public,
        shares=shares,
        truth=None if truth is None else TrueReward.load(truth),
        source=source if isinstance(source, Path) else None,
    )


def _refuse_steps(settings: Align, why: str) -> None:
    refuse_options(settings, why, "horizon", "step_features", "step_bound")


def _trajectories(settings: Align, source: object) -> Trajectories:
    """Return trajectories of files; of records nothing but what is said decides how they look."""
    why = "it is for judgments of texts, and these are trajectories"
    refuse_options(settings, why, "columns", "longest", "levels", "intercept", "truth")
    refuse_given({"--class": settings.candidates}, why)
    if settings.step_bound is not None:
        usable_bound("--step-bound", settings.step_bound)
    reading, hides = settings.reading, settings.hides_texts
    steps = settings.read_trajectories(
        source,
        drop=reading["drop"],
        person_field=reading["person_field"],
        dimension=settings.dimension if hides and settings.step_features is None else None,
        hides_records=hides,
    )
    width = steps.pairs.differences(None).shape[1]
    if settings.dimension not in (None, width):
        raise UsageError(
            f"--dimension {settings.dimension}: a step has {width} features. Nothing was done. "
            "Leave it out."
        )
    return steps


def _public(path: object, pairs: Pairs | PrivatePairs, settings: Align) -> tuple[Pairs, bool]:
    """Return judgments that the user declares public, and whether it shares private questions."""
    # Those are left out. Where it is private too which questions are in the private file, they
    # stay, and nothing is refused for them: either would tell. Public labels are the user's word.
    with named_option("--evaluate"):
        drop = {*settings.reading["drop"], "identical"}
        if pairs.given is None:
            public = read_pairs(cast("Any", path), **settings.reading | {"drop": drop})
        else:
            public = settings.read_trajectories(path, drop=drop, person_field=None).pairs
    if isinstance(public, PrivatePairs):
        raise DataError("--evaluate: a public file holds judgments, not randomized answers.")
    private = set() if settings.hides_texts else set().union(*pairs.subjects(public))
    asked = public.subjects(pairs)
    if shares := not private.isdisjoint(set().union(*asked)):
        if not settings.accept_weak:
            raise PrivacyError(
                "--evaluate was declared public, and it asks about what the private file asks "
                "about: it may hold the private judgments themselves. Nothing was done. Give a "
                "file of other questions; or say --accept-weak, which leaves the shared ones out, "
                f"and the caveat {PUBLIC_OVERLAP} stays with the result."
            )
        public = public.part([row for row, about in enumerate(asked) if private.isdisjoint(about)])
    if (public.labels == UNDECIDED).all():
        raise DataError("--evaluate: no decided judgment is left in it. Nothing was spent.")
    return public, shares


def prepare(settings: Align, data: object = None) -> AlignRun:
    """Return the run of the noise that was asked for, on files or on data in memory."""
    started = _random.clock()
    if data is None:
        inputs = _inputs(settings)
    elif isinstance(data, Rankings | PrivateChoices):
        inputs = _rankings(settings, data)
    else:
        inputs = _pairs(settings, data)
    if settings.noise != "auto" and not settings.dry_run:
        return _run(settings, inputs, started)
    runs, refused = _permitted(settings, inputs, started)
    if settings.noise != "auto":
        run = _run(settings, inputs, started)  # which says itself why it is refused
        return replace(run, forecast=_foreseen(settings, inputs, runs, refused))
    if not runs:  # what a ledger or data do not permit tells more than what options do not
        raise min(refused.values(), key=lambda error: isinstance(error, UsageError))
    forecast = _foreseen(settings, inputs, runs, refused)
    return replace(runs[forecast["best"]], forecast=forecast)


def _permitted(
    settings: Align, inputs: Inputs, started: float
) -> tuple[dict[str, AlignRun], dict[str, SordinoError]]:
    """Return the run of each kind of noise that may be used here, and why the others may not."""
    # Options, unit and data decide, and the ledger: of what it would refuse nothing is spent.
    runs: dict[str, AlignRun] = {}
    refused: dict[str, SordinoError] = {}
    ballots = isinstance(inputs.data, Slates)
    for kind, found in settings.kinds.items():
        try:
            if isinstance(found, UsageError):
                raise found
            found.refuse_nothing_to_resume()
            _refuse_unsuited(kind, Rankings if ballots else type(inputs.data))
            if ballots and kind != "labels":
                refuse_randomized(cast("Slates", inputs.data))
            if isinstance(inputs.data, Pairs | PrivatePairs):
                _refuse_unfit(kind, inputs.data)
            run = _run(found, inputs, started)
            with quiet():  # the run that is made says it
                run.planned()
            runs[kind] = run
        except SordinoError as error:
            refused[kind] = error
    return runs, refused


def _run(settings: Align, inputs: Inputs, started: float) -> AlignRun:
    """Return the run of one kind of noise; the others are not even imported."""
    if settings.noise == "estimate":
        from .align_estimate import noised_estimate  # noqa: PLC0415

        return noised_estimate(settings, inputs, started)
    if settings.noise == "draws":
        from .align_draws import DrawNoise  # noqa: PLC0415

        return DrawNoise(settings=settings, inputs=inputs, started=started)
    from .align_labels import ChoiceNoise, LabelNoise  # noqa: PLC0415

    kind = ChoiceNoise if isinstance(inputs.data, Slates) else LabelNoise
    return kind(settings=settings, inputs=inputs, started=started)


def _foreseen(
    settings: Align,
    inputs: Inputs,
    runs: Mapping[str, AlignRun],
    refused: Mapping[str, SordinoError],
) -> dict[str, Any]:
    # Of records neither a text nor a label is looked at: their forecast is the stated population's,
    # or that of judgments which the user declares public.
    data, public, hidden = inputs.data, inputs.public, settings.hides_texts
    told: dict[str, dict[str, Any]] = {
        name: {"left_out": str(error)} for name, error in refused.items()
    }
    taught = None
    known: Pairs | Chunks | None = data if isinstance(data, Pairs) else None
    if isinstance(data, Chunks) and data.dimension is None:
        known = data
    alone = known is not None and bool(runs) and settings.judges_alone(known)
    signals: dict[Features | None, tuple[Matrix, Signal]] = {}
    seen = None if hidden or known is None else _looked_at(known)
    if public is not None:
        decided = np.flatnonzero(label_shares(public.labels) != _HALF)
        taught = public.part(decided.tolist())
    for name, run in runs.items():
        told[name] = {"accuracy": None}
        # Of what draws from a reward of thumbs choose between, thumbs say nothing.
        if known is None or not run.pictured or (alone and name == "draws"):
            continue
        features = None
        if getattr(known, "given", None) is None:
            features = settings.suited(narrowed(run.text_features), known)
        if features not in signals:
            signals[features] = _population(run, features, known, seen, taught)
        rows, signal = signals[features]
        told[name] = signal.foresee(run.picture(rows)).to_dict()

    def merit(name: str) -> tuple[bool, float, bool]:
        """Return whether it was paid for already, and how well it is foreseen to do."""
        # Of rankings nothing is foreseen: a sum of whole ballots tells more than first choices.
        begun = runs[name].request is not None and runs[name].settings.is_begun
        foreseen = told[name]["accuracy"]
        extra = _TRUSTLESS if foreseen is not None and name == "labels" else 0.0
        return begun, (foreseen or 0.0) + extra, name == "estimate"

    private = hidden and settings.relation.option == "add-remove"  # how many there are
    first = None
    if isinstance(data, Pairs) and not hidden and data.given is None and len(data):
        texts = data.prompts[0], data.first[0], data.second[0]
        named = zip(("prompt", "first", "second"), texts, strict=True)
        first = {name: shortened(text) for name, text in named if not isinstance(text, Absent)}
    rating = ""
    if isinstance(source := next(iter(settings.prefs), None), Path):
        rating = rating_of(source, settings.reading["columns"])
    return {
        "best": max(runs, key=merit) if runs else settings.noise,
        "kinds": {kind: told[kind] for kind in settings.kinds},
        "n": None if private else data.rows if isinstance(data, Chunks) else len(data),
        "from": "the stated population" if taught is None else "public judgments",
        "first_record": first,
        "rating": rating,
    }


def _population(
    run: AlignRun,
    features: Features | None,
    data: Pairs | Chunks,
    seen: Pairs | None,
    taught: Pairs | None,
) -> tuple[Matrix, Signal]:
    """Return how questions differ in some features, and what is known of the true reward."""
    alone = isinstance(features, Intercept)
    public = None if taught is None else taught.differences(features)
    if seen is not None:
        rows = seen.differences(features)
    elif public is not None:
        rows = public
    else:
        plain = None if features is None else narrowed(run.text_features)
        bars = len(features.families) if isinstance(features, Intercept) else 0
        rows = population_rows(plain, getattr(data, "given", None), bars=bars)
    if taught is None or public is None:
        return rows, Signal.of_population(rows, alone=alone)
    return rows, Signal.of_public(public, label_shares(taught.labels), alone=alone)


def _looked_at(data: Pairs | Chunks) -> Pairs:
    """Return so many public questions as say how features differ; of files the first batch's."""
    if isinstance(data, Chunks):
        batches = (pairs for chunk in data for pairs in judgments(data, chunk))
        data = next(pairs for pairs in batches if len(pairs))
    usual = set(np.linspace(0, len(data) - 1, min(len(data), ROWS)).astype(int).tolist())
    return data.part(sorted(usual))


def align(
    data: object,
    *,
    epsilon: float | None = None,
    noise: str = "labels",
    unit: str = "label",
    ledger: Ledger | str | Path | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Aligned:
    """Return a private reward and policy learned from judgments: what ``sordino align`` does.

    Args:
        data: Judgments: a file, a folder or several of them; a data frame, a table, a list of
            mappings; :class:`sordino.Pairs`, :class:`sordino.PrivatePairs` or
            :class:`sordino.Rankings`; or trajectories, as
            :func:`~sordino.preferences.trajectories.read_trajectories` takes and makes them.
        epsilon: Privacy loss allowed, for each ``unit``; needed for raw judgments.
        noise: Where the noise is: ``"labels"``, ``"estimate"``, ``"draws"``, or ``"auto"`` for that
            which is foreseen to predict best.
        unit: Whose change is hidden: ``"label"``, ``"person"`` or ``"record"``.
        ledger: The ledger that pays, or its path; by default the project's, as for the command.
        out: A folder to write the results to; without one they stay in memory.
        **options: Every other option of the command, with ``_`` for ``-``: ``delta``, ``cap``,
            ``evaluate``, ``simulate_seed`` and so on. ``--data`` is ``data_name`` here.

    Raises:
        UsageError: A setting cannot be met; nothing was spent.
        BudgetExceeded: The ledger has not enough left; nothing was released.
        DataError: The judgments cannot be used.

    Guarantee:
        What ``guarantee`` of the result says, for each ``unit``; it was reserved on the ledger
        before noise was drawn. Shown by tests/soundness/test_align_bytes.py and
        tests/soundness/test_central_bytes.py: this is the command's own run.

    Example:
        >>> import sordino, tempfile
        >>> rows, _ = sordino.simulate_pairs(400, seed=0)
        >>> ledger = f"{tempfile.mkdtemp()}/spend.db"
        >>> found = sordino.align(
        ...     list(rows), epsilon=1, noise="estimate", ledger=ledger, simulate_seed=0
        ... )
        >>> found.guarantee.unit, found.reward.pairs, sorted(found.files)
        ('label', 400, ['report.html', 'result.json', 'reward.json'])
    """
    given: dict[str, Any] = {"epsilon": epsilon, "noise": noise, "unit": unit, **options}
    told, made, paid = perform_call(Align, prepare, "prefs", data, given, ledger, out)
    return Aligned(result=told, files=made, ledger=paid)


def perform_call(
    kind: type[S],
    prepare: Callable[[S, Any], FolderRun],
    argument: str,
    data: object,
    given: dict[str, Any],
    ledger: Ledger | str | Path | None,
    out: str | Path | None,
) -> tuple[dict[str, Any], dict[str, str], Ledger]:
    """Do what a command does, called by its options in Python; return result, files and ledger."""
    verb = kind.title.rpartition(" ")[2]
    named = {"data_name": "data"}
    known = {each.name for each in fields(kind)} - _NOT_OF_A_CALL - {"data"} | set(named)
    if strange := sorted(set(given) - known):
        close = get_close_matches(strange[0], sorted(known), 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"{verb} has no option {strange[0]!r}.{hint} Nothing was done. There are: "
            f"{', '.join(sorted(known))}."
        )
    for own, hint, said in declared(kind):
        value, kinds = given.get(own.name), (hint, *get_args(hint))
        words = next((each for each in kinds if type(each) is EnumType), None)
        flags = (True, False) if bool in kinds else ()  # a text such as "no" is a yes to Python
        if value is not None and (permitted := tuple(words or said.choices or flags)):
            word = _validate.one_of(own.name, getattr(value, "option", value), permitted)
            given[own.name] = words(word) if words else word
        elif isinstance(value, str) and Path in kinds:
            given[own.name] = Path(value)
    paths = data if isinstance(data, list | tuple) and data else [data]
    files = all(isinstance(each, str | Path) for each in paths)
    if isinstance(ledger, Ledger):
        given |= {"data_name": given.get("data_name", ledger.data or None)}
        ledger = ledger.path
    given = {named.get(name, name): value for name, value in given.items()}
    given[argument] = [Path(str(each)) for each in paths] if files else []
    # options have no dashes here
    with reworded(lambda said: _FLAG.sub(lambda flag: flag[1].replace("-", "_"), said)):
        settings = kind(
            out=None if out is None else Path(out),
            ledger=None if ledger is None else Path(ledger),
            **given,
        )
        settings.refuse_nothing_to_resume()
        with prepare(settings, None if files else data).ready() as run:
            assert isinstance(run, FolderRun)  # noqa: S101 - for the type checker
            (told, made), paid = run.perform(run.finish)
    return told, made, paid
