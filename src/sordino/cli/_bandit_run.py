"""One run of ``sordino bandit``, step by step: plan, pay, draw, write.

What the user chose for one run of ``sordino bandit``, refused before a file is opened.

Everything that one run of ``sordino bandit`` reads; all but the logs is public.

The policy that a run of ``sordino bandit`` draws from, and what its draws cost.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino import _random, _validate
from sordino._files import explained, finite, refuse_existing, refuse_unwritable, to_json
from sordino.algorithms.draw_calibration import bounded_range_of_draws
from sordino.algorithms.offline_bandit import count_tested_policy, linear_policy, multi_armed_policy
from sordino.errors import BudgetExceeded, DataError, UsageError
from sordino.mechanisms.gibbs import least_temperature
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.policies.withheld import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs, read_bandit_logs, usable_reward_range
from sordino.preferences.catalogues import Catalogue, columns_of, rows_of, whole_text
from sordino.privacy import accounting
from sordino.privacy.events import BoundedRangeEvent, Event
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, never_less, never_more
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.arm_means import ArmMeans, ScreenedMeans
from sordino.rewards.linear_bandit import BallRidge
from sordino.rewards.release_checks import entropy_of, refuse_large_delta

from ._accounts import (
    Budget,
    Limit,
    describe_draw,
    future_ledger,
    open_ledger,
    paid_since,
    quiet,
    spending_limit,
    warn_if_vacuous,
    with_spend,
)
from ._app import Bar
from ._options import split_names
from ._run import add_spend_to_errors, made_folder, publish
from ._settings import Neighbors, Unit, named_option, refuse_given

_MOST_DRAWS = 10_000_000
_BOTH = 2


class BanditMethod(StrEnum):
    """What is estimated of every arm."""

    multi_armed = "multi-armed"
    linear = "linear"


@dataclass(frozen=True, kw_only=True)
class BanditSettings:
    """What the user chose for one run."""

    # Attributes are the options of `sordino bandit`; None where one was left out.

    out: Path
    arm: str
    arms: str | None
    reward: str
    reward_range: tuple[float, float] | None
    method: BanditMethod
    action_features: Path | None
    action_columns: str | None
    context_columns: str | None
    context_bound: float | None
    contexts: Path | None
    unit: Unit
    neighbors: Neighbors | None
    epsilon: float | None
    delta: float
    draws: int
    temperature: float | None
    regularization: float | None
    penalty: float
    center: float | None
    ball: float | None
    records: int | None
    test_epsilon: float | None
    test_delta: float | None
    reference: str
    ledger: Path | None
    data: str
    budget: Budget
    simulate_seed: int | None
    force: bool

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        self._refuse_missing()
        with named_option("--reward-range"):
            usable_reward_range(self.ends)
        self._refuse_out_of_range()
        self._refuse_other_terms()
        if self.method is BanditMethod.linear:
            self._refuse_in_linear()
        else:
            self._refuse_in_multi_armed()
        if self.tested:
            self._refuse_in_test()
        elif self.test_delta is not None:
            raise UsageError("--test-delta belongs to --test-epsilon: give both. Nothing was done.")
        if not self.tested:
            self._refuse_amounts()
        refuse_existing(self.out, force=self.force)

    def _refuse_missing(self) -> None:
        """Refuse to read from the logs what would be released by that."""
        if self.arms is None:
            raise UsageError(
                "--arms is needed: the number of arms, or CATALOGUE.csv:COLUMN of a public file "
                "that names them. Read from the logs, they would be released with the draws. "
                "Nothing was done."
            )
        if not (self.arms.isdigit() or all(self.arms.rpartition(":")[::2])):
            raise UsageError(
                "--arms must be the number of arms, or FILE:COLUMN of a public file that names "
                f"them, such as items.csv:item_id; got {self.arms!r}. Nothing was done."
            )
        if self.reward_range is None:
            raise UsageError(
                "--reward-range LOW HIGH is needed: the least and the largest reward that there "
                "can be, such as 0 1 for clicks. Read from the logs, it would be released with the "
                "draws. Nothing was done."
            )

    def _refuse_out_of_range(self) -> None:
        """Refuse numbers that mean nothing."""
        _validate.integer("--draws", self.draws, at_least=1, at_most=_MOST_DRAWS)
        _validate.failure_probability("--delta", self.delta)
        _validate.non_negative("--penalty", self.penalty)
        positive = {
            "--epsilon": self.epsilon,
            "--temperature": self.temperature,
            "--regularization": self.regularization,
            "--ball": self.ball,
            "--context-bound": self.context_bound,
        }
        for name, value in positive.items():
            if value is not None:
                _validate.positive(name, value)
        if self.records is not None:
            _validate.integer("--records", self.records, at_least=1)
        self._refuse_center()

    def _refuse_center(self) -> None:
        """Refuse a center that no reward can have."""
        low, high = self.ends
        if self.center is not None and not low <= self.center <= high:
            raise UsageError(
                f"--center must lie within --reward-range, {low:g} to {high:g}, got "
                f"{self.center:g}. Nothing was done."
            )

    def _refuse_other_terms(self) -> None:
        """Refuse units and relations that no bound is known for."""
        if self.unit is Unit.person:
            raise UsageError(
                "--unit person: what is bounded is one record or one label, not all records of a "
                "person. Nothing was done. Use --unit record with one record for each person."
            )
        if self.unit is Unit.label and self.neighbors not in (None, Neighbors.replace_one):
            raise UsageError(
                f"With --unit label rewards are replaced: --neighbors {self.neighbors} is for "
                "whole records. Nothing was done. Leave it out, or use --unit record."
            )

    def _refuse_in_linear(self) -> None:
        """Refuse what a regression has no use for."""
        given = {
            "--center": self.center,
            "--test-epsilon": self.test_epsilon,
            "--test-delta": self.test_delta,
        }
        refuse_given(given, "this is for --method multi-armed")
        if self.action_columns is not None and self.action_features is None:
            raise UsageError(
                "--action-columns names columns of --action-features: give both. Nothing was done."
            )
        if self.context_columns is None:
            of_contexts = {"--contexts": self.contexts, "--context-bound": self.context_bound}
            refuse_given(of_contexts, "without --context-columns the logs have no contexts")
        if self.unit is Unit.label:
            refuse_given({"--ball": self.ball}, "a ball is for --unit record")

    def _refuse_in_multi_armed(self) -> None:
        """Refuse what means of arms have no use for."""
        given = {
            "--action-features": self.action_features,
            "--action-columns": self.action_columns,
            "--context-columns": self.context_columns,
            "--context-bound": self.context_bound,
            "--contexts": self.contexts,
            "--ball": self.ball,
        }
        refuse_given(given, "this is for --method linear")

    def _refuse_in_test(self) -> None:
        """Refuse what a test of counts has no use for, or takes the place of."""
        given = {
            "--temperature": self.temperature,
            "--regularization": self.regularization,
            "--center": self.center,
            "--records": self.records,
        }
        refuse_given(given, "with --test-epsilon the test decides this")
        if self.unit is Unit.label:
            raise UsageError(
                "--test-epsilon is for --unit record: with --unit label the counts are public. "
                "Nothing was done."
            )
        if self.epsilon is None:
            raise UsageError("--epsilon is needed with --test-epsilon. Nothing was done.")
        _part("--test-epsilon", self.test_epsilon, "--epsilon", self.epsilon)
        if self.delta == 0:
            raise UsageError(
                "--test-epsilon needs --delta above 0: the test may fail. Nothing was done."
            )
        if self.test_delta is not None:
            _part("--test-delta", self.test_delta, "--delta", self.delta)

    def _refuse_amounts(self) -> None:
        """Refuse too much or too little to settle how private a draw is."""
        given = (self.temperature is not None) + (self.regularization is not None)
        if self.epsilon is None and given < _BOTH:
            raise UsageError(
                "--epsilon is needed: the privacy loss allowed for all draws together (1 is "
                "strong, 4 is weak). Or give both --temperature and --regularization, and see with "
                "--dry-run what that spends. Nothing was done."
            )
        if self.epsilon is not None and given == _BOTH:
            raise UsageError(
                "--epsilon with both --temperature and --regularization: these two alone decide "
                "what is spent. Nothing was done. Leave one of the three out; --budget limits the "
                "spend."
            )

    @property
    def ends(self) -> tuple[float, float]:
        """Return the least and the largest reward."""
        assert self.reward_range is not None  # noqa: S101 - refused before
        return self.reward_range

    @property
    def tested(self) -> bool:
        """Return whether the least count of an arm is tested first."""
        return self.test_epsilon is not None

    @property
    def test_terms(self) -> tuple[float, float]:
        """Return the epsilon and delta of the test; half of delta if nothing was said."""
        assert self.test_epsilon is not None  # noqa: S101 - asked with ``tested`` only
        return self.test_epsilon, self.delta / 2 if self.test_delta is None else self.test_delta

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is: labels are replaced, records added or removed."""
        usual = Neighbors.replace_one if self.unit is Unit.label else Neighbors.add_remove
        return (self.neighbors or usual).relation

    @property
    def declared_contexts(self) -> tuple[str, ...]:
        """Return the declared columns of contexts."""
        return split_names("--context-columns", self.context_columns)

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or self.out / "spend.db"


def _part(name: str, value: float | None, of: str, whole: float) -> None:
    """Refuse a part that is nothing, or is not smaller than the whole."""
    if value is None or not 0 < value < whole:
        raise UsageError(
            f"{name} is the part of {of} that the test may spend: it must be above 0 and below "
            f"{whole:g}, got {value!r}. Nothing was done."
        )


_UNIFORM = "uniform"
_PROBABILITY = "probability"
_SUM_ATOL = 1e-9


@dataclass(frozen=True, kw_only=True)
class BanditInputs:
    """What a run reads, checked before anything is spent."""

    logs: BanditLogs  # raw records; confidential
    # Public contexts to draw for, shape (m, p); None where nothing was asked.
    contexts: Float[np.ndarray, "m p"] | None
    # Public starting probabilities of the arms; None for uniform ones.
    reference: tuple[float, ...] | None

    @property
    def questions(self) -> list[Any]:
        """Return the contexts to draw for, at least one; None is the context of zeros."""
        return [None] if self.contexts is None else list(self.contexts)


def read_bandit_inputs(source: Path, settings: BanditSettings) -> BanditInputs:
    """Return the inputs of a run."""
    _refuse_own(source, settings)
    catalogue = _catalogue(settings)
    reference = _reference(settings, catalogue)
    columns = columns_of("--context-columns", settings.declared_contexts)
    with Bar.shown("Reading") as bar:
        logs = read_bandit_logs(
            source,
            arm=settings.arm,
            reward=settings.reward,
            catalogue=catalogue,
            reward_range=settings.ends,
            context_columns=columns,
            context_bound=settings.context_bound,
            hides_records=settings.unit is not Unit.label,
            progress=bar,
        )
    contexts = None
    if settings.contexts is not None:
        with named_option("--contexts"):
            contexts = logs.contexts_of(settings.contexts)
            if not len(contexts):
                raise DataError("no context in it. Nothing was drawn.")
    return BanditInputs(logs=logs, contexts=contexts, reference=reference)


def _refuse_own(source: Path, settings: BanditSettings) -> None:
    """Refuse to take what must be public from the logs."""
    arms, reference = (settings.arms or "").rpartition(":")[0], settings.reference
    public = {
        "--arms": Path(arms) if arms else None,
        "--action-features": settings.action_features,
        "--contexts": settings.contexts,
        "--reference": None if reference == _UNIFORM else Path(reference),
    }
    for option, path in public.items():
        with suppress(OSError, ValueError):
            if path is not None and path.samefile(source):
                clash = option
                break
    else:
        return
    raise UsageError(
        f"{clash} must not be the file of the logs: what was pulled, and for whom, would be "
        "released. Nothing was read. Give a file that is public."
    )


def _catalogue(settings: BanditSettings) -> Catalogue:
    """Return the arms, with features where a file of them is given."""
    with named_option("--arms"):
        arms = Catalogue.of(settings.arms or "")
    if settings.action_features is None:
        return arms
    column = (settings.arms or "").rpartition(":")[2]
    column = settings.arm if column.isdigit() else column
    listed = split_names("--action-columns", settings.action_columns)
    with named_option("--action-features"):
        known = Catalogue.read(settings.action_features, arm=column, features=listed or True)
        places = known.places(arms.names)
        if (places < 0).any():
            missing = arms.names[int(np.argmax(places < 0))]
            raise DataError(f"no record of the arm {missing!r}, which --arms has.")
    assert known.features is not None  # noqa: S101 - asked for
    return Catalogue(arms.names, features=known.features[places])


def _reference(settings: BanditSettings, catalogue: Catalogue) -> tuple[float, ...] | None:
    """Return the starting probability of every arm; None for uniform ones."""
    if settings.reference == _UNIFORM:
        return None
    path = Path(settings.reference)
    with named_option("--reference"):
        chances = [math.nan] * len(catalogue)
        for where, arm, chance in _stated(path, settings.arm):
            name = whole_text(arm)
            place = -1 if name is None else catalogue.place(name)
            if place < 0:
                raise DataError(f"{where} names no arm of --arms.")
            if not math.isnan(chances[place]):
                raise DataError(f"{where} names an arm a second time.")
            chances[place] = _chance(chance, where)
        _refuse_incomplete(chances, catalogue)
    return tuple(chances)


def _chance(value: Any, where: str) -> float:
    """Return a probability; texts of a table are read as numbers."""
    try:
        chance = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        chance = math.nan
    if not 0 <= chance <= 1:
        raise DataError(f"{where}: field {_PROBABILITY!r} must be a probability, 0 to 1.")
    return chance


def _refuse_incomplete(chances: list[float], catalogue: Catalogue) -> None:
    """Refuse what is no distribution over the catalogue."""
    for name, chance in zip(catalogue.names, chances, strict=True):
        if math.isnan(chance):
            raise DataError(f"no probability for the arm {name!r}. Write 0 for one never drawn.")
    total = math.fsum(chances)
    if not abs(total - 1) <= _SUM_ATOL:
        raise DataError(f"the probabilities must sum to 1; they sum to {total!r}.")


def _stated(path: Path, column: str) -> Iterable[tuple[str, Any, Any]]:
    """Yield (place, arm, probability) of a .json object, or of the rows of any other file."""
    if path.suffix == ".json":
        yield from _stated_object(path)
        return
    for where, row in rows_of(path):
        name = column if column in row else "arm"
        missing = [field for field in (name, _PROBABILITY) if field not in row]
        if missing:
            raise DataError(f"{where}: field {missing[0]!r} is missing.")
        yield where, row[name], row[_PROBABILITY]


def _stated_object(path: Path) -> Iterable[tuple[str, Any, Any]]:
    """Yield (place, arm, probability) of one JSON object from arms to probabilities."""
    with explained(f"{path.name} cannot be read"):
        raw = path.read_bytes()
    try:
        pairs = json.loads(raw, object_pairs_hook=list)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise DataError(f"{path.name} must be one JSON object from arms to probabilities.")
    for number, (arm, chance) in enumerate(pairs, start=1):
        yield f"entry {number}", arm, chance


_BELOW = 1 - 1e-12  # the parts of a sum of floats, so that they never pass the whole
_RIDGE = 1.0


@dataclass(frozen=True, kw_only=True)
class DrawCost:
    """What one run puts on the ledger, from public settings alone."""

    test: MinimumCount | None  # the test of counts; None without one
    one: BoundedRangeEvent  # all draws of one question, or one draw of one question of several
    count: int  # how often `one` happens

    @classmethod
    def of(
        cls, settings: BanditSettings, inputs: BanditInputs, policy: WithheldPolicy | None
    ) -> DrawCost:
        """Return the cost of a run."""
        if policy is None:
            one = BoundedRangeEvent(_share(settings), draws=settings.draws)
            epsilon, delta = settings.test_terms
            return cls(test=MinimumCount(epsilon, delta=delta), one=one, count=1)
        with quiet():
            widest = max(policy.bounded_range(question) for question in inputs.questions)
        several = len(inputs.questions) > 1
        return cls(
            test=None,
            one=BoundedRangeEvent(widest, draws=1 if several else settings.draws),
            count=settings.draws * len(inputs.questions) if several else 1,
        )

    @property
    def events(self) -> Counter[Event]:
        """Return everything that is spent."""
        events: Counter[Event] = Counter({self.one: self.count})
        if self.test is not None:
            events[self.test.event] += 1
        return events

    @property
    def per_draw(self) -> dict[str, Any]:
        """Return what one draw costs by itself."""
        return describe_draw(self.one.bounded_range)

    def epsilon(self, settings: BanditSettings) -> float:
        """Return the loss of everything together at the delta that the user allowed."""
        return accounting.composed_epsilon(
            self.events, neighbors=settings.relation, delta=settings.delta
        )


def make_bandit_policy(settings: BanditSettings, inputs: BanditInputs) -> WithheldPolicy | None:
    """Return what will be drawn from, at no cost; None where a test comes first."""
    if settings.tested:
        return None
    fixed: dict[str, Any] = {
        "unit": settings.unit.whose,
        "neighbors": settings.relation,
        "epsilon": settings.epsilon,
        "delta": settings.delta if settings.epsilon is not None else 0.0,
        "temperature": settings.temperature,
        "penalty": settings.penalty,
        "records": settings.records,
        "reference": inputs.reference,
    }
    if settings.method is BanditMethod.linear:
        return _linear(settings, inputs, fixed)
    chosen = settings.unit is Unit.label and settings.epsilon is not None
    policy = multi_armed_policy(
        inputs.logs,
        draws=settings.draws,
        shrinkage=settings.regularization,
        center=None if settings.center is None else settings.center - settings.ends[0],
        **(fixed | ({"temperature": None} if chosen else {})),
    )
    return _no_colder(policy, settings) if chosen else policy


def _no_colder(policy: WithheldPolicy, settings: BanditSettings) -> WithheldPolicy:
    """Return the policy at the temperature that was asked for, if that is as private."""
    return replace(policy, temperature=max(policy.temperature, settings.temperature or 0.0))


def _linear(
    settings: BanditSettings, inputs: BanditInputs, fixed: dict[str, Any]
) -> WithheldPolicy:
    """Return the policy of a regression."""
    # What is asked is public, so that the policy may be as sharp as these very questions allow.
    count, ridge = len(inputs.questions), settings.regularization
    public = settings.unit is Unit.label and settings.epsilon is not None
    if public:  # the design is public too, and decides how far a reward can move the scores
        fixed = fixed | {"epsilon": None, "delta": 0.0, "temperature": 1.0}
        ridge = ridge or _RIDGE
    policy = linear_policy(
        inputs.logs,
        draws=settings.draws * count,
        adaptive=count > 1,
        ridge=ridge,
        ball=settings.ball,
        **fixed,
    )
    if settings.epsilon is None or (settings.temperature is not None and not public):
        return policy
    held = policy.estimate
    widest = max(held.score_range(held.options(asked, None)) for asked in inputs.questions)
    least = least_temperature(widest, _share(settings, count))
    return _no_colder(replace(policy, temperature=least), settings)


def tested_policy(settings: BanditSettings, inputs: BanditInputs, ledger: Ledger) -> WithheldPolicy:
    """Return the policy that a test of counts allows; the test is spent here."""
    epsilon, delta = settings.test_terms
    return count_tested_policy(
        inputs.logs,
        neighbors=settings.relation,
        **_rest(settings),
        draws=settings.draws,
        test_epsilon=epsilon,
        test_delta=delta,
        penalty=settings.penalty,
        reference=inputs.reference,
        ledger=ledger,
        simulate_seed=settings.simulate_seed,
    )


def _rest(settings: BanditSettings) -> dict[str, float]:
    """Return the epsilon and delta that the draws may spend beside a test, if there is one."""
    assert settings.epsilon is not None  # noqa: S101 - refused before
    if not settings.tested:
        return {"epsilon": settings.epsilon, "delta": settings.delta}
    epsilon, delta = settings.test_terms
    return {
        "epsilon": (settings.epsilon - epsilon) * _BELOW,
        "delta": (settings.delta - delta) * _BELOW,
    }


def _share(settings: BanditSettings, questions: int = 1) -> float:
    """Return the bounded range that one draw may have."""
    return bounded_range_of_draws(
        **_rest(settings),
        draws=settings.draws * questions,
        neighbors=settings.relation,
        adaptive=questions > 1,
    )


def regularization_of(policy: WithheldPolicy) -> float:
    """Return the shrinkage of means, or the ridge of a regression."""
    held = policy.estimate
    if isinstance(held, BallRidge):
        return held.ridge
    assert isinstance(held, ArmMeans)  # noqa: S101 - there are these two
    return held.shrinkage


BANDIT_FORMAT = "sordino.bandit"
BANDIT_VERSION = 1
_WAY_OUT = "Use a smaller --epsilon, or a larger --temperature or --regularization."
_BLOCK = 1024  # questions whose features are held at once


@dataclass(frozen=True, kw_only=True)
class BanditRun:
    """A run that was prepared: nothing is spent, and nothing was written."""

    settings: BanditSettings  # what the user chose
    inputs: BanditInputs  # what was read
    policy: WithheldPolicy | None  # what will be drawn from; None where a test comes first
    cost: DrawCost  # what it will spend

    @classmethod
    def prepared(cls, settings: BanditSettings, inputs: BanditInputs) -> BanditRun:
        """Return the run of settings on inputs; warn where it protects nobody."""
        policy = make_bandit_policy(settings, inputs)
        cost = DrawCost.of(settings, inputs, policy)
        warn_if_vacuous(cost.one.bounded_range, _WAY_OUT)
        return cls(settings=settings, inputs=inputs, policy=policy, cost=cost)

    def plan(self) -> dict[str, Any]:
        """Return what the run would spend; nothing is touched."""
        path, data = self.settings.ledger_path, self.settings.data
        ledger = future_ledger(path, data, self._limit())
        ledger.check_data(data, None if self.policy is None else self.policy.estimate.public_digest)
        promise = self._promise()
        self._refuse_over_budget(ledger, promise)
        return {
            "spend": promise.epsilon,
            "temperature": None if self.policy is None else self.policy.temperature,
            "regularization": None if self.policy is None else regularization_of(self.policy),
            "draws": self.settings.draws * len(self.inputs.questions),
            "per_draw": self._per_draw(),
            **describe_guarantee_and_caveats(promise),
        }

    def run(self, *, started: float) -> tuple[dict[str, Any], Ledger]:
        """Pay, draw and write; return what ``result.json`` holds, and the ledger."""
        # Whatever can be refused is refused before anything is spent.
        self.plan()
        settings = self.settings
        with made_folder(settings.out):
            refuse_unwritable(settings.out / "result.json")
            ledger = open_ledger(
                settings.ledger_path,
                settings.data,
                self._limit(),
            )
            with add_spend_to_errors(ledger):
                result = self._drawn(ledger, started)
                publish(settings.out, {"result.json": to_json(result)}, force=settings.force)
        return result, ledger

    def _drawn(self, ledger: Ledger, started: float) -> dict[str, Any]:
        """Return the result of drawing, after each entry on the ledger."""
        before = len(ledger.rows)
        policy = self.policy or tested_policy(self.settings, self.inputs, ledger)
        with quiet():
            drawn = self._draws(policy, ledger)
        names = self.inputs.logs.catalogue.names
        paid = paid_since(ledger, before, self.settings.delta)
        timed = self.settings.unit is Unit.label  # else a time tells how many records there were
        result: dict[str, Any] = finite(
            {
                "format": BANDIT_FORMAT,
                "version": BANDIT_VERSION,
                **describe_guarantee_and_caveats(paid),
                "temperature": policy.temperature,
                "regularization": regularization_of(policy),
                "draws": [names[arm] for arm in drawn.tolist()],
                "per_draw": self._per_draw(policy),
                "seconds": round(_random.clock() - started, 3) if timed else None,
            }
        )
        return result

    def _draws(self, policy: WithheldPolicy, ledger: Ledger) -> Int64[np.ndarray, " n"]:
        """Return drawn arms, those for one context together, in the order of the contexts."""
        count, questions = self.settings.draws, self.inputs.questions
        seed = self.settings.simulate_seed
        if policy is not self.policy and seed is not None:
            seed += 1  # the test had the first
        if len(questions) == 1:
            return policy.draw_many(count, questions[0], ledger=ledger, simulate_seed=seed)
        asked = [question for question in questions for _ in range(count)]
        parts = [
            policy.draw_each(
                asked[start : start + _BLOCK],
                ledger=ledger,
                simulate_seed=None if seed is None else seed + start,
            )
            for start in range(0, len(asked), _BLOCK)
        ]
        return np.concatenate(parts)

    def _per_draw(self, policy: WithheldPolicy | None = None) -> dict[str, Any]:
        """Return what one draw costs, and what is public of how it came about."""
        told = self.cost.per_draw
        if self.inputs.logs.context_columns:
            given = self.inputs.contexts
            told["contexts"] = "zeros" if given is None else len(given)
        if self.cost.test is not None:
            told["test"] = {"epsilon": self.cost.test.epsilon, "delta": self.cost.test.delta}
        if policy is not None and self.policy is None:
            return told | _tested(policy)
        return told

    def _limit(self) -> Limit:
        """Return the limit of a new ledger: what this run may spend."""
        settings = self.settings
        asked = self.cost.epsilon(settings) if settings.epsilon is None else settings.epsilon
        return spending_limit(
            asked,
            settings.budget,
            unit=settings.unit.whose,
            trust="central",
            delta=settings.delta,
            neighbors=settings.relation,
        )

    def _promise(self) -> Guarantee:
        """Return what everything together would promise."""
        settings = self.settings
        promise = Guarantee(
            self.cost.epsilon(settings),
            delta=settings.delta,
            unit=settings.unit.whose,
            neighbors=settings.relation,
            trust="central",
            randomness=entropy_of(settings.simulate_seed).randomness,
            caveats=() if self.policy is None else self.policy.estimate.caveats,
        )
        refuse_large_delta(promise, None)
        return promise

    def _refuse_over_budget(self, ledger: Ledger, promise: Guarantee) -> None:
        """Refuse a run that the ledger has not enough left for."""
        cost, after = self.cost, ledger
        try:
            if cost.test is not None:
                after = with_spend(ledger, cost.test.event, promise)
            after.check(cost.one, promise=promise, count=cost.count)
        except BudgetExceeded as error:
            raise BudgetExceeded(f"{error}{self._way_out(ledger)}") from None

    def _way_out(self, ledger: Ledger) -> str:
        """Return what to do about a budget whose delta is less than what was planned with."""
        if ledger.budget.delta >= self.settings.delta:
            return ""
        return (
            f" This run was planned with delta={never_less(self.settings.delta)}, and "
            f"{ledger.path.name} allows delta={never_more(ledger.budget.delta)}: use that --delta, "
            "or change the limit with --budget-delta DELTA, which the ledger records."
        )


def _tested(policy: WithheldPolicy) -> dict[str, Any]:
    """Return what a test found, which was paid for, and what a draw costs after it."""
    held = policy.estimate
    assert isinstance(held, ScreenedMeans)  # noqa: S101 - counts are of arms
    with quiet():
        size = policy.bounded_range()
    return describe_draw(size) | {"least_count": held.least_count}
