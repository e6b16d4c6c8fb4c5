"""A study of policies across epsilons, run by run; one that was interrupted goes on.

Rows on randomized labels toss fresh coins for every epsilon and seed, each an entry on the ledger
that counts the project. So is every run that learns from raw judgments: those promise something to
whole records, which covers their labels, and the other rows to labels alone.
"""

from __future__ import annotations

import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sordino import _random
from sordino._files import finite, read_json, to_json, write_json
from sordino._version import __version__
from sordino.errors import DataError, PrivacyError, SordinoError, UsageError
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs, PrivatePairs, digest_of_answers
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.books import EVERY
from sordino.privacy.guarantee import (
    CAVEATS,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Event,
    Guarantee,
    never_less,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import event_of, request_of
from sordino.privatization.answers import privatize, use_unprotected
from sordino.reporting.curves import write_training_curves
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.reporting.result import judge as verdict_on
from sordino.rewards.release_checks import entropy_of
from sordino.runs.run import (
    Limit,
    future_ledger,
    is_limited,
    open_ledger,
    promise_of_all,
    publish,
    spending_limit,
    with_spend,
)
from sordino.runs.settings import DELTA, Budget, language_module

from ._language_run import promised

if TYPE_CHECKING:
    from sordino.language.dp_sgd.privacy import CentralPrivacy
    from sordino.language.studies.comparison_table import ComparisonRun
    from sordino.language.studies.pipeline import CentralSizes, Contest, Method, StudySizes


def refuse_reference(model: Path) -> None:
    """Refuse a reference that does not write, or that carries a promise about judgments."""
    checkpoints = language_module("models.checkpoints")
    folder = checkpoints.checkpoint_folder(model, kinds=checkpoints.CAUSAL)
    if language_module("models.promises").folder_promises(folder):
        raise PrivacyError(
            f"{folder.name} was trained on judgments: it carries a promise about them, which no "
            "row of a table would count. Nothing was done. Give the label-free checkpoint that it "
            "was trained from."
        )


def refuse_texts(study: Study) -> None:
    """Refuse a judge and texts that a comparison would stumble over; no label is read."""
    fitting, sizes, pairs = language_module("studies.pipeline"), study.sizes, study.all_pairs
    longest = max(sizes.max_new_tokens, sizes.policy.max_new_tokens)
    starts: list[Any] = []
    if study.model is None:
        tokens = fitting.planned_tokens(study.reference_pairs, sizes.model, sizes.dpo)
    else:
        tokens = fitting.checkpoint_tokens(study.model, sizes.dpo, writes=True)
        writer = language_module("models.checkpoints").load_causal_model(study.model)
        starts += [writer, tokens.tokenizer]  # which say what they have read
    fitting.refuse_unreadable(tokens, pairs, study.parts, answer_room=longest)
    if study.judge is not None:
        judge = language_module("rewards.text_rewards").TextRewardModel.load(study.judge)
        for row in study.parts["held_out"]:
            judge.can_read(pairs.prompts[row], pairs.first[row])  # a template may refuse
        starts += [judge.model, judge.tokenizer]
    if study.central is not None:
        read, rows = language_module("references.texts").TextsRead, study.central
        read.on(*starts).caveats(read.of(rows.pairs), declared=rows.declare_unread)


def table_notes(value: dict[str, Any], *, seeds: int) -> Iterator[str]:
    """Yield what stands below the table."""
    if value["simulated"]:
        yield "**SIMULATED: a seed was used, so nothing here is private.**"
    yield (
        f"Win rate: how often the judge prefers an answer to that of the reference, on "
        f"{value['prompts']} held-out prompts. No policy was trained on them. A tie counts one "
        "half."
    )
    if value["reference"] == "built":
        yield (
            "The reference was built from the texts of "
            + (
                "this file, those of the held-out prompts among them"
                if value["central"] is None
                else "the judge's half"
            )
            + "; it saw no judgment."
        )
    if seeds > 1:
        yield f"Intervals are over {seeds} seeds: coins, training and draws."
    judge = value["judge"]
    if judge["pairs"] is None:
        promise = Guarantee.from_dict(judge["guarantee"], judge["caveats"])
        yield f"The judge's labels: {promise}."
    else:
        yield (
            f"The judge learned from {judge['pairs']} other judgments, unprotected: the table "
            "tells about them."
        )
    yield from _on_costs(value, seeds)
    yield "Held-out accuracy is measured on randomized answers and corrected for their flips."
    if value["central"] is not None:
        yield from _on_central(value, seeds)


def _on_costs(value: dict[str, Any], seeds: int) -> Iterator[str]:
    if seeds > 1:
        yield (
            f"The epsilon of a row's labels is that of one release. Each of the {seeds} seeds has "
            "a release of its own, all of the same judgments: the last column adds them up."
        )
    if len({row["method"] for row in value["rows"]} - {"reference"}) > 1:
        yield "Methods at one epsilon share its releases, which count once in the total."
    if value["guarantee"] is None:
        return
    total = Guarantee.from_dict(value["guarantee"], value["caveats"])
    others = "" if value["central"] is None else ", without the central rows"
    yield (
        f"Whoever sees this table sees all its rows: together, by the ledger, epsilon="
        f"{never_less(total.epsilon)} per label{others}. Promise: {total}."
    )
    yield from (f"`{name}`: {CAVEATS[name]}" for name in total.caveats)


def _on_central(value: dict[str, Any], seeds: int) -> Iterator[str]:
    """Yield what rows on raw judgments promise, and what they leave out."""
    central = value["central"]
    runs = f"; each of the {seeds} seeds is a run of its own, and paid for" if seeds > 1 else ""
    yield (
        "Central rows: DPO on raw judgments, in every step of which the gradient of each record is "
        f"clipped and the sum is noised{runs}."
    )
    if central["guarantee"] is not None:
        total = Guarantee.from_dict(central["guarantee"], central["caveats"])
        yield (
            f"All central rows together: {total}. They count for labels too: by the ledger, all "
            "rows and whatever else was spent of these judgments come to, for one label, "
            f"{value['accounts']['label']['says']}."
        )
        mine = (name for name in total.caveats if name not in value["caveats"])
        yield from (f"`{name}`: {CAVEATS[name]}" for name in mine)
    yield (
        "The promise to records is about what training took from one; the reference has read none "
        "of them. Prompts, and how many judgments there are, count as public here."
    )
    yield (
        "Held-out accuracy of central rows is not measured: on raw judgments it would be a release "
        "of its own."
    )


NON_PRIVATE = math.inf
"""The epsilon of a row that protects nobody."""

_SEEDS_APART = 10_000
"""Between the seeds of two epsilons."""

_FORMAT, _VERSION = "sordino.answers", 1
_WORK = ".run-"  # folders of policies whose runs are not kept yet


def _part_of(request: str, labels: str, seed: int) -> str:
    """Return the name by which one release of a study finds what was paid for it before."""
    return request_of({"study": request, "labels": labels, "seed": seed})


def _labels_name(epsilon: float) -> str:
    """Return what a row of this epsilon is called: different epsilons differ in their names."""
    if math.isinf(epsilon):
        return "non-private"
    short = f"{epsilon:g}"
    return f"epsilon={short if float(short) == epsilon else repr(epsilon)}"


def unlinked(pairs: Pairs) -> Pairs:
    """Return the same judgments without person ids, so that every release tosses anew."""
    # With ids an answer that a person gave before would be repeated, and seeds would share coins.
    return replace(pairs, persons=None)


def _coin(epsilon: float) -> NonPrivate | RandomizedResponse:
    return NonPrivate() if math.isinf(epsilon) else RandomizedResponse(epsilon)


_JUDGES = spending_limit(math.inf, Budget(), unit="label", trust="central")
"""What is spent of judgments that are used unprotected, and the limit of a new ledger on it."""


@dataclass(frozen=True, kw_only=True)
class _Rows(ABC):
    """Judgments to learn from, and how often policies are trained on them."""

    pairs: Pairs  # for randomized labels the held-out judgments are among them
    epsilons: tuple[float, ...]  # of the rows; infinite for the one without privacy
    seeds: int  # releases, or runs, at each finite epsilon
    path: Path  # the ledger
    data: str | None  # its name on the ledger; None where its questions say which it is
    request: str  # the name of the command, by which it finds what it paid for before
    simulate_seed: int | None = None  # as `--simulate-seed`
    accepted: tuple[str, ...] | None = None  # as of a `Ledger`

    @property
    @abstractmethod
    def limits(self) -> list[Limit]:
        """Return the limits of a new ledger, that of these rows first."""

    def open(self) -> Ledger:
        """Return the ledger; a new one has a limit for each unit."""
        if not is_limited(self.path):
            for limit in self.limits:
                Ledger.open(self.path, data=self.data or EVERY, budget=limit.budget.of(limit.run))
        ledger = open_ledger(self.path, self.data, self.limits[0])
        ledger.accepted = self.accepted
        return ledger

    def coins(self, epsilon: float, seed: int) -> int | None:
        """Return the seed of what is drawn for study, if there is one."""
        start = self.simulate_seed
        apart = seed + _SEEDS_APART * self.epsilons.index(epsilon)
        return None if start is None else start + apart


@dataclass(frozen=True, kw_only=True)
class Releases(_Rows):
    """Judgments whose labels are randomized, and what is kept of that."""

    held_out: frozenset[int]  # row numbers of the held-out ones
    answers: Path  # folder where randomized answers are kept
    budget: Budget = field(default_factory=Budget)  # as `--budget`; None for what the study spends
    held: ExitStack = field(default_factory=ExitStack, repr=False)  # what ends with the study
    central: CentralRows | None = None  # of the same records: what covers these covers labels too
    _unprotected: list[PrivatePairs] = field(default_factory=list, repr=False)

    @property
    def spend(self) -> float:
        """Return what all releases cost one label together."""
        return float(never_less(math.fsum(map(math.fsum, self.of_labels.values())), 12))

    @property
    def of_labels(self) -> dict[str, list[float]]:
        """Return the epsilon of every release behind each kind of labels."""
        return {
            _labels_name(epsilon): [epsilon] * (1 if math.isinf(epsilon) else self.seeds)
            for epsilon in self.epsilons
        }

    @property
    def limits(self) -> list[Limit]:
        """Return the limits of a new ledger: of labels, which central rows spend too, first."""
        spend, delta, central, more = self.spend, 0.0, self.central, []
        if central is not None:
            delta, events = central.delta, self.events | central.events
            spend = composed_epsilon(events, neighbors=REPLACE_ONE, delta=delta) * _MARGIN
            more = central.limits
        budget = self.budget
        return [spending_limit(spend, budget, unit="label", trust="central", delta=delta), *more]

    @property
    def events(self) -> dict[Event, int]:
        """Return what releases do, and how many of them there are."""
        counts = map(len, self.of_labels.values())
        return {_coin(each).event: n for each, n in zip(self.epsilons, counts, strict=True)}

    def check(self, *, anew: bool) -> Ledger:
        """Return the ledger after it; refuse what it has not enough left for; touch nothing."""
        ledger = future_ledger(self.path, self.data, *self.limits)
        ledger.accepted = self.accepted
        for epsilon, (labels, each) in zip(self.epsilons, self.of_labels.items(), strict=True):
            mechanism = _coin(epsilon)
            promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
            if math.isfinite(epsilon):
                promise = replace(promise, randomness=entropy_of(self.simulate_seed).randomness)
            for seed in range(len(each)):
                if anew or not self._file(epsilon, seed).exists():
                    ledger = ledger.continuing(_part_of(self.request, labels, seed))
                    asked = self.pairs.questions
                    ledger = with_spend(ledger, mechanism.event, promise, questions=asked)
        return ledger

    def paid_answers(self, epsilon: float, seed: int) -> tuple[PrivatePairs, PrivatePairs]:
        """Return training and held-out answers of one release, which is paid for first."""
        kept, ledger, once = self._file(epsilon, seed), self.open(), math.isinf(epsilon)
        # What protects nobody is kept nowhere and paid for once, whichever seed is the first.
        named = ledger.attempt(_part_of(self.request, _labels_name(epsilon), 0 if once else seed))
        if once:
            if not self._unprotected:
                self.held.enter_context(named)
                found = use_unprotected(self.pairs, NonPrivate(), ledger=ledger)
                self._unprotected.append(found)
            return self._parts(self._unprotected[0])
        if not kept.exists():
            coins, coin = self.coins(epsilon, seed), RandomizedResponse(epsilon)
            with named:
                private = privatize(self.pairs, coin, ledger=ledger, simulate_seed=coins)
                # without questions, which are in the user's file
                told = describe_guarantee_and_caveats(private.guarantee)
                write_json(
                    kept,
                    {
                        "format": _FORMAT,
                        "version": _VERSION,
                        **told,
                        "release_ids": list(private.release_ids),
                        "artifact": private.artifact,
                        "answers": private.answers.tolist(),
                    },
                )
        return self._parts(self._stored_answers(epsilon, kept))

    def _file(self, epsilon: float, seed: int) -> Path:
        """Return where the answers of one release are kept: a study that goes on pays once."""
        return self.answers / f"{_labels_name(epsilon)}-{seed}.json"

    def _stored_answers(self, epsilon: float, path: Path) -> PrivatePairs:
        problem = "The answers of an earlier release cannot be used"
        found = read_json(path, kind=_FORMAT, version=_VERSION, problem=problem)
        try:
            private = PrivatePairs(
                **{name: getattr(self.pairs, name) for name in Comparisons.__dataclass_fields__},
                answers=np.array(found["answers"]),
                flip_probability=RandomizedResponse(epsilon).flip_probability,
                guarantee=Guarantee.from_dict(found["guarantee"], found["caveats"]),
                release_ids=tuple(found["release_ids"]),
                artifact=found["artifact"],
            )
        except (SordinoError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{problem}: {path.name} is malformed.") from error
        if digest_of_answers(private.public_digest, private.answers) != private.artifact:
            raise DataError(f"{problem}: {path.name} is of other questions, or was changed.")
        return private

    def _parts(self, private: PrivatePairs) -> tuple[PrivatePairs, PrivatePairs]:
        rows = range(len(private))
        training = private.subset([row for row in rows if row not in self.held_out])
        return training, private.subset([row for row in rows if row in self.held_out])


_MARGIN = 1 + 1e-6  # the search that fits a budget, and the sum, differ in their last digits
_PUBLIC = ("prompts", "answers", "number of judgments")  # which a table and its files tell of
_BELOW = 0.1  # of one over the number of records: a larger delta would permit to publish one


def _central_labels(epsilon: float) -> str:
    """Return what a row of this epsilon is called."""
    return f"central, {_labels_name(epsilon)}"


@dataclass(frozen=True, kw_only=True)
class CentralRows(_Rows):
    """Raw judgments, on which nothing is measured; an epsilon is what one run costs a record."""

    units: float  # A guess of how many records there are, which counts as public
    sizes: CentralSizes  # of the training
    folder: Path  # where finished runs are kept
    declare_unread: bool = False  # as `--declare-unread`

    @property
    def delta(self) -> float:
        """Return the failure probability of one run, and of all together."""
        return min(DELTA, _BELOW / self.units)

    @property
    def runs(self) -> list[tuple[float, int]]:
        """Return every run as (epsilon, seed)."""
        return [(epsilon, seed) for epsilon in self.epsilons for seed in range(self.seeds)]

    def privacy(self, epsilon: float) -> CentralPrivacy:
        """Return the public settings of one run."""
        batch = min(float(self.sizes.expected_batch), self.units)
        privacy: CentralPrivacy = language_module("dp_sgd.privacy").CentralPrivacy(
            epsilon,
            self.delta,
            unit="record",
            neighbors=REPLACE_SPECIAL,
            sampling_probability=batch / self.units,
            steps=self.sizes.steps,
            expected_batch=batch,
            clip=self.sizes.clip,
        )
        return privacy

    def kept(self, epsilon: float, seed: int) -> Path:
        """Return where a finished run is kept: a study that goes on pays for it once."""
        return self.folder / f"dpo-central-{_labels_name(epsilon)}-{seed}.json"

    @property
    def spend(self) -> float:
        """Return what all runs cost one record together."""
        return self._epsilon(self.events)

    @property
    def events(self) -> dict[Event, int]:
        """Return what runs do, and how many of them there are."""
        return {self._event(epsilon): self.seeds for epsilon in self.epsilons}

    def _event(self, epsilon: float) -> Event:
        privacy = self.privacy(epsilon)
        return privacy.event(privacy.steps)

    def _epsilon(self, events: dict[Event, int]) -> float:
        return composed_epsilon(events, neighbors=REPLACE_SPECIAL, delta=self.delta)

    @property
    def limits(self) -> list[Limit]:
        """Return the limit of a new ledger."""
        return [
            spending_limit(
                self.spend * _MARGIN,
                Budget(),
                unit="record",
                trust="central",
                delta=self.delta,
                neighbors=REPLACE_SPECIAL,
            )
        ]

    def check(self, ledger: Ledger, *, anew: bool) -> None:
        """Refuse what a ledger that is not touched has not enough left for."""
        ledger = ledger.with_rows(ledger.rows, self.data or EVERY, "record")
        ledger.accepted = self.accepted
        for epsilon, seed in self.runs:
            if anew or not self.kept(epsilon, seed).exists():
                promise = self.privacy(epsilon).promise(self.simulate_seed)
                ledger = ledger.continuing(_part_of(self.request, _central_labels(epsilon), seed))
                ledger = with_spend(ledger, self._event(epsilon), promise)

    @contextmanager
    def run(self, contest: Contest, epsilon: float, seed: int) -> Iterator[dict[str, Any]]:
        """Yield how a policy fares that one run made; it is paid for before anything is drawn."""
        pipeline = language_module("studies.pipeline")
        named, ledger = _part_of(self.request, _central_labels(epsilon), seed), self.open()
        place = self.folder.with_name(f"{_WORK}{named[:16]}")  # until it is known how it fares
        with ledger.attempt(named):
            if not (place / pipeline.TRAINING_LOG).exists():
                pipeline.train_centrally(
                    "policy",
                    self.pairs,
                    contest.reference,
                    place,
                    replace(self.sizes.terms, seed=seed),
                    privacy=self.privacy(epsilon),
                    ledger=ledger,
                    declare_unread=self.declare_unread,
                    simulate_seed=self.coins(epsilon, seed),
                )
            yield {"win": contest.fared(place, seed), "curve": []}
        shutil.rmtree(place, ignore_errors=True)

    def costs(self, labels: str) -> dict[str, Any]:
        """Return what a row cost one record by the ledger, interrupted runs among it."""
        named = {_central_labels(epsilon): epsilon for epsilon in self.epsilons}
        if labels not in named:
            return {}
        event = self._event(named[labels])
        paid = sum(event_of(row) == event for row in self.open().spends)
        return {
            "unit": "record",
            "delta": self.delta,
            "releases": paid,
            "epsilon_of_one_release": named[labels],
            "epsilon_of_all_releases": self._epsilon({event: paid}),
        }

    def promised(self) -> dict[str, Any]:
        """Return what all rows promise together: every run on the ledger."""
        return {
            "units": self.units,
            "public": list(_PUBLIC),
            **_spent(self.open(), self.events, self.delta),
        }

    def planned(self) -> dict[str, Any]:
        """Return what the study would spend."""
        noise = {_labels_name(each): self.privacy(each).noise_multiplier for each in self.epsilons}
        return {
            "spend": self.spend,
            "delta": self.delta,
            "unit": "record",
            "neighbors": REPLACE_SPECIAL.name,
            "units": self.units,
            "runs": len(self.runs),
            "noise_multipliers": noise,
        }


_STUDY_FORMAT, _STUDY_VERSION = "sordino.language-table", 1
_RUN = "sordino.language-run"
_STUDY = "sordino.language-study"
_PROBLEM = "This study cannot be gone on with"


_Fare = Callable[[], AbstractContextManager[dict[str, Any]]]


def _once(path: Path, named: dict[str, Any], fare: _Fare) -> ComparisonRun:
    """Return a run that was done before, or do it and keep it."""
    kind: type[ComparisonRun] = language_module("studies.comparison_table").ComparisonRun
    if path.exists():
        kept = read_json(path, kind=_RUN, version=_STUDY_VERSION, problem=_PROBLEM)
        return kind(**{name: kept[name] for name in kind.__dataclass_fields__})
    with fare() as found:  # what was paid for it is forgotten only when it is kept
        run = kind(**named, **found)
        write_json(path, {"format": _RUN, "version": _STUDY_VERSION, **run.to_dict()})
    return run


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that a comparison needs."""

    folder: Path  # where it is kept
    all_pairs: Pairs  # of all parts
    # Row numbers of them by what they are for: training, held_out, judge.
    parts: Mapping[str, Sequence[int]]
    training: Releases  # judgments to learn from
    judge_pairs: Pairs | None  # judgments that may be used unprotected, to train the judge
    judge: Path | None  # A judge that is there already
    model: Path | None  # the label-free reference, or None to build one
    methods: tuple[str, ...]  # how policies are trained
    sizes: StudySizes  # of everything
    data: str  # name of the data set
    central: CentralRows | None = None  # rows that learn from raw judgments, if there are any

    @property
    def reference_pairs(self) -> Pairs:
        """Return whose texts a tiny reference reads; no label of them."""
        # Rows on raw judgments hide whole records: the reference must not have read one of those.
        if self.central is None:
            return self.all_pairs
        assert self.judge_pairs is not None  # noqa: S101 - for the type checker: it was refused
        return self.judge_pairs

    @property
    def simulated(self) -> bool:
        """Return whether a seed is behind the policies' labels, or behind the judge's."""
        judged = self.judge is not None and promised(self.judge).guarantee.simulated
        return bool(judged) or self.training.simulate_seed is not None

    @property
    def runs(self) -> list[tuple[str, float, int]]:
        """Return every run on randomized labels as (method, epsilon, seed); the reference has 0."""
        seeds = range(self.training.seeds)
        rows = [("reference", 0.0)]
        rows += [(method, each) for method in self.methods for each in self.training.epsilons]
        return [(method, epsilon, seed) for method, epsilon in rows for seed in seeds]

    def check(self, *, anew: bool) -> None:
        """Refuse what the ledger has not enough left for; nothing is touched."""
        ledger = self.training.check(anew=anew)
        if self.central is not None:
            self.central.check(ledger, anew=anew)
        done = (self.folder / "judge" / "training_log.json").exists() and not anew
        if self.judge_pairs is not None and not done:
            ledger = future_ledger(self.training.path, f"{self.data}-judge", _JUDGES)
            ledger = ledger.continuing(_part_of(self.training.request, "judge", 0))
            asked = self.judge_pairs.questions
            with_spend(ledger, NonPrivate().event, _JUDGES.run, questions=asked)

    def planned(self) -> dict[str, Any]:
        """Return what the study would spend."""
        judged = self.judge_pairs
        return {
            "spend": self.training.spend,
            "pairs": len(self.training.pairs),
            "judge_spend": 0.0 if judged is None else math.inf,
            "judge_pairs": 0 if judged is None else len(judged),
            "runs": len(self.runs)
            - self.training.seeds
            + (0 if self.central is None else len(self.central.runs)),
            "spend_by_labels": {
                labels: math.fsum(each) for labels, each in self.training.of_labels.items()
            },
            "central": None if self.central is None else self.central.planned(),
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
        }

    def run(self, *, progress: Callable[[int, int], None], force: bool) -> dict[str, Any]:
        """Do what is left to do, write everything, and return what ``table.json`` holds."""
        started = _random.clock()
        self._begin(force=force)
        table = language_module("studies.comparison_table")
        alone = nullcontext if self.model else language_module("studies.pipeline").one_thread
        runs = []
        with self.training.held, alone():
            contest, judge = self._contest()
            jobs = list(self._jobs(contest))
            for path, named, fare in jobs:
                runs.append(_once(path, named, fare))
                progress(len(runs), len(jobs))
            for left in self.folder.glob(f"{_WORK}*"):
                shutil.rmtree(left, ignore_errors=True)
        account = self.training.open()
        value = {
            "format": _STUDY_FORMAT,
            "version": _STUDY_VERSION,
            "sordino": __version__,
            **_spent(account, self.training.events, 0.0),
            "accounts": {unit: held.to_dict() for unit, held in account.accounts().items()},
            "central": None if self.central is None else self.central.promised(),
            "rows": [
                row if self.central is None else row | self.central.costs(row["labels"])
                for row in table.summary_rows(runs, self.training.of_labels)
            ],
            "curves": table.learning_curves(runs),
            "judge": judge,
            "prompts": len(contest.prompts),
            "pairs": len(self.training.pairs),
            "held_out": len(self.training.held_out),
            "reference": "given" if self.model else "built",
            "simulated": self.simulated,
            "sizes": self.sizes.to_dict(),
            # where raw records were read, a time would tell of them
            "seconds": None if self.central else round(_random.clock() - started, 1),
        }
        value = {"verdict": verdict_on(value), **value}
        curves = self.folder / "curves.svg"
        write_training_curves(curves, value["curves"], force=True, simulated=self.simulated)
        lines = table.markdown_table(
            value["rows"], list(table_notes(value, seeds=self.training.seeds))
        )
        files = {"table.md": lines, "table.json": to_json(finite(value))}
        publish(self.folder, files, force=True)
        return value

    def _jobs(self, contest: Contest) -> Iterator[tuple[Path, dict[str, Any], _Fare]]:
        """Yield every run: the file that keeps it, what it is called, and how it is done."""
        for method, epsilon, seed in self.runs:
            labels = "label-free" if method == "reference" else _labels_name(epsilon)
            path = self.folder / "runs" / f"{method}-{labels}-{seed}.json"
            fare: _Fare = partial(self._fare, contest, method, epsilon, seed)
            yield path, {"method": method, "labels": labels, "seed": seed}, fare
        if self.central is not None:
            for epsilon, seed in self.central.runs:
                named = {"method": "dpo", "labels": _central_labels(epsilon), "seed": seed}
                fare = partial(self.central.run, contest, epsilon, seed)
                yield self.central.kept(epsilon, seed), named, fare

    def _fare(
        self, contest: Contest, method: str, epsilon: float, seed: int
    ) -> AbstractContextManager[dict[str, Any]]:
        """Return how the reference fares, or a policy that randomized labels taught."""
        if method == "reference":
            return nullcontext(contest.baseline(seed))
        how = cast("Method", method)  # there are these two
        return nullcontext(contest.run(how, *self.training.paid_answers(epsilon, seed), seed=seed))

    def _begin(self, *, force: bool) -> None:
        """Write down what is studied, or check that it is the study that was begun here."""
        path, wanted = self.folder / "study.json", self._settings()
        if force:
            for name in ("runs", "answers", "judge", "reference"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        elif path.exists():
            known = read_json(path, kind=_STUDY, version=_STUDY_VERSION, problem=_PROBLEM)
            if known != wanted:
                raise UsageError(
                    f"{self.folder.name} holds another study, with other settings or of other "
                    "judgments. Nothing was done. Choose another folder to start anew, which "
                    "spends anew."
                )
        for name in ("runs", "answers"):
            (self.folder / name).mkdir(exist_ok=True)
        if force or not path.exists():
            write_json(path, wanted, force=True)

    def _settings(self) -> dict[str, Any]:
        """Return everything public that a result depends on, but for where files lie."""
        digest = language_module("embeddings").model_digest
        models, central = {"model": self.model, "judge": self.judge}, self.central
        return {
            "format": _STUDY,
            "version": _STUDY_VERSION,
            "questions": self.all_pairs.public_digest,
            "data": self.data,
            "methods": list(self.methods),
            "epsilons": [_labels_name(epsilon) for epsilon in self.training.epsilons],
            "seeds": self.training.seeds,
            "simulate_seed": self.training.simulate_seed,
            "central": None
            if central is None
            else {
                "epsilons": list(central.epsilons),
                "units": central.units,
                "delta": central.delta,
            },
            "sizes": self.sizes.to_dict(),
            **{name: None if path is None else digest(path) for name, path in models.items()},
        }

    def _contest(self) -> tuple[Contest, dict[str, Any]]:
        """Return what all runs share, and what is told of the judge."""
        reference = self.model or self._reference()
        folder = self.judge or self._trained_judge(reference)
        reward = language_module("rewards.text_rewards").TextRewardModel.load(folder)
        unique = language_module("studies.comparison_table").unique_prompts
        prompts = self.training.pairs.prompts
        parts: tuple[list[Any], list[Any]] = ([], [])
        for row, prompt in enumerate(prompts):
            parts[row in self.training.held_out].append(prompt)
        contest: Contest = language_module("studies.pipeline").Contest(
            reference=reference,
            judge=language_module("judging").RewardJudge(reward),
            prompts=unique(parts[True])[: self.sizes.prompts],
            trained_prompts=unique(parts[False]),
            sizes=self.sizes,
        )
        who = "a reward of yours" if self.judge else "a reward of the other half"
        told = {"name": who, "pairs": None if self.judge_pairs is None else len(self.judge_pairs)}
        return contest, {**told, **describe_guarantee_and_caveats(reward.guarantee)}

    def _reference(self) -> Path:
        folder, marker = self.folder / "reference", self.folder / "reference" / "built.json"
        if not marker.exists():
            losses = language_module("studies.pipeline").build_reference(
                self.reference_pairs, self.sizes.model, folder, steps=self.sizes.pretraining
            )
            write_json(marker, {"loss": losses[-1]})
        return folder

    def _trained_judge(self, reference: Path) -> Path:
        folder = self.folder / "judge"
        if not (folder / "training_log.json").exists():
            assert self.judge_pairs is not None  # noqa: S101 - for the type checker
            self.training.open()  # a new ledger has a limit for each unit
            ledger = open_ledger(self.training.path, f"{self.data}-judge", _JUDGES)
            with ledger.attempt(_part_of(self.training.request, "judge", 0)):
                private = use_unprotected(self.judge_pairs, NonPrivate(), ledger=ledger)
                language_module("studies.pipeline").train_reward(
                    private, reference, folder, self.sizes.judge, uncertain=False
                )
        return folder


def _spent(ledger: Ledger, events: Collection[Event], delta: float) -> dict[str, Any]:
    """Return what a study's rows promise: all entries like its own, those of killed runs too."""
    rows = [row for row in ledger.spends if row.unit == ledger.unit and event_of(row) in events]
    if not rows:
        return {"spent": 0.0, "guarantee": None, "caveats": []}
    total = promise_of_all(rows, delta)
    return {"spent": total.epsilon, **describe_guarantee_and_caveats(total)}
