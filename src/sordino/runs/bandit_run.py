"""Arms drawn from a private policy of logged pulls, as one run: plan, account, draw, publish.

All that is read but the logs is public. What the draws cost is known before they are made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from sordino import _random, _validate
from sordino._files import finite
from sordino.algorithms.offline_bandit import (
    bounded_range_of_draws,
    count_tested_policy,
    linear_policy,
    multi_armed_policy,
)
from sordino.errors import BudgetExceeded, DataError, UsageError
from sordino.mechanisms.gibbs import least_temperature
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.policies.gibbs import WithheldPolicy
from sordino.preferences.bandit_logs import (
    BanditLogs,
    Catalogue,
    ContextColumn,
    columns_of,
    read_bandit_logs,
    usable_reward_range,
)
from sordino.preferences.files import read_rows
from sordino.privacy import accounting
from sordino.privacy.guarantee import (
    BoundedRangeEvent,
    Event,
    NeighboringRelation,
    never_less,
    never_more,
)
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats
from sordino.rewards.bandits import ArmMeans, BallRidge, ScreenedMeans
from sordino.rewards.release_checks import weighed

from .progress import Bar
from .run import FolderRun, Limit, describe_draw, paid_here, quiet, spending_limit, with_spend
from .settings import (
    DELTA,
    Argument,
    DataOption,
    FitOption,
    IntoFolder,
    Neighbors,
    Option,
    PrivacyOption,
    RewardRange,
    Unit,
    named_option,
    refuse_foreign,
    refuse_options,
    terms_of,
)
from .tables import ledger_rows, promise_rows

_MOST_DRAWS = 10_000_000
_UNIFORM = "uniform"
_PROBABILITY = "probability"
_SUM_ATOL = 1e-9
_BELOW = 1 - 1e-12  # the parts of a sum of floats, so that they never pass the whole
_RIDGE = 1.0
_FARTHEST = 700.0  # logarithm of the largest odds that a float holds, about
_FORMAT = "sordino.bandit"
_VERSION = 1
_BLOCK = 1024  # questions whose features are held at once
_LISTED = 5  # arms
_HIDDEN = {
    "label": "one reward; who was given which arm is public (--unit record hides that too)",
    "record": "one record: arm, reward and context",
}


def _refuse_any(refusals: Mapping[str, object]) -> None:
    """Refuse settings for the first of some reasons that holds; each is what is said of it."""
    for said, holds in refusals.items():
        if holds:
            raise UsageError(said)


_LINEAR, _MULTI_ARMED = "linear", "multi-armed"  # what is estimated of every arm
_LinearOption = partial(DataOption, noise=(_LINEAR,))


@dataclass(frozen=True, kw_only=True)
class Bandit(IntoFolder):
    """What the user chose for one run; None where an option was left out."""

    title = "sordino bandit"

    logs: Path = Argument("Logged pulls (.jsonl, .csv or .tsv, also .gz), one in a record.")
    arm: str = Option("Field of the pulled arm.", required=True, metavar="FIELD")
    reward: str = Option("Field of its reward.", required=True, metavar="FIELD")
    arms: str | None = Option(
        "Needed: how many arms there are (named 0 to N-1), or a public file that names them. "
        "Never read from the logs; records of other arms are left out silently.",
        metavar="N|CATALOGUE:FIELD",
    )
    reward_range: RewardRange = None
    method: str = FitOption(
        "What is estimated: the mean reward of each arm, or a regression on features of arms "
        "and contexts.",
        _MULTI_ARMED,
        choices=(_MULTI_ARMED, _LINEAR),
    )
    epsilon: float | None = PrivacyOption(
        "Privacy loss allowed for all draws together, per --unit. Left out, it follows from "
        "--temperature and --regularization."
    )
    delta: float = PrivacyOption("Failure probability allowed; 0 for none.", DELTA)
    draws: int = PrivacyOption(
        "How many arms to draw, for every context.", 1, min=1, max=_MOST_DRAWS
    )
    unit: Unit = PrivacyOption(
        "What one change is about: a whole record, or (label) its reward alone, if it is "
        "public who was given which arm.",
        Unit.record,
    )
    neighbors: Neighbors | None = PrivacyOption(
        "What one change is. Records are added or removed unless you say otherwise; rewards "
        "alone are replaced."
    )
    reference: str = FitOption(
        "Public starting probabilities: a table of arm and probability.",
        _UNIFORM,
        metavar="uniform|FILE",
    )
    temperature: float | None = FitOption(
        "KL strength of the policy, in units of reward; by default what --epsilon allows."
    )
    regularization: float | None = FitOption(
        "Made-up pulls of each arm (multi-armed), or ridge (linear); by default what "
        "--epsilon asks for."
    )
    penalty: float = FitOption("Pessimism about what was seen rarely.", 0.0)
    center: float | None = FitOption(
        "Multi-armed: reward of a made-up pull; the middle of --reward-range by default. Where "
        "rewards are rare, a public guess of the typical one serves better, and costs more.",
        noise=(_MULTI_ARMED,),
    )
    ball: float | None = FitOption(
        "Linear: bound on the norm of the weights; by default HIGH less LOW.", noise=(_LINEAR,)
    )
    records: int | None = FitOption(
        "A public guess of how many records there are, to choose --regularization by. Never "
        "count them: that is private.",
        metavar="N",
        min=1,
    )
    action_features: Path | None = _LinearOption(
        "Linear: public features of every arm.", metavar="CATALOGUE"
    )
    action_columns: str | None = _LinearOption(
        "Its columns: numbers, or (B:8) texts hashed into 8 entries; by default all that hold "
        "numbers only.",
        metavar="A,B:8",
    )
    context_columns: str | None = _LinearOption(
        "Linear: fields of the logs that were known before the pull, likewise.", metavar="A,B:8"
    )
    context_bound: float | None = _LinearOption(
        "Norm to which contexts are shortened; by default the root of the number of fields, "
        "which leaves fields within -1 and 1 as they are."
    )
    contexts: Path | None = _LinearOption(
        "Public contexts to draw for, --draws arms for each; without it, one of zeros.",
        metavar="FILE",
    )
    test_epsilon: float | None = PrivacyOption(
        "Multi-armed: spend this part of --epsilon on a private test of how rare the rarest "
        "arm is, and make the policy as sharp as that allows.",
        noise=(_MULTI_ARMED,),
        metavar="EPSILON",
    )
    test_delta: float | None = PrivacyOption(
        "Part of --delta for the test; half of it by default.", noise=(_MULTI_ARMED,)
    )

    @property
    def public(self) -> dict[str, Path | None]:
        """Return the files that say which arms are drawn, and for whom, by their options."""
        arms = (self.arms or "").rpartition(":")[0]
        return {
            "--arms": Path(arms) if arms else None,
            "--action-features": self.action_features,
            "--contexts": self.contexts,
            "--reference": None if self.reference == _UNIFORM else Path(self.reference),
        }

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public files that say what is drawn."""
        return tuple(self.public.values())

    def __post_init__(self) -> None:
        # What is read from the logs would be released by that.
        _refuse_any(
            {
                "--arms is needed: the number of arms, or CATALOGUE.csv:COLUMN of a public file "
                "that names them. Read from the logs, they would be released with the draws. "
                "Nothing was done.": self.arms is None,
                "--reward-range LOW HIGH is needed: the least and the largest reward that there "
                "can be, such as 0 1 for clicks. Read from the logs, it would be released with the "
                "draws. Nothing was done.": self.reward_range is None,
            }
        )
        with named_option("--reward-range"):
            low, high = usable_reward_range(self.ends)
        _validate.failure_probability("--delta", self.delta)
        _validate.non_negative("--penalty", self.penalty)
        for name in ("epsilon", "temperature", "regularization", "ball", "context_bound"):
            if (value := getattr(self, name)) is not None:
                _validate.positive(f"--{name.replace('_', '-')}", value)
        arms, label, linear = self.arms or "", self.unit is Unit.label, self.method == _LINEAR
        replaces = self.neighbors in (None, Neighbors.replace_one)
        _refuse_any(
            {
                "--arms must be the number of arms, or FILE:COLUMN of a public file that names "
                f"them, such as items.csv:item_id; got {arms!r}. Nothing was done.": not (
                    arms.isdigit() or all(arms.rpartition(":")[::2])
                ),
                f"--center must lie within --reward-range, {low:g} to {high:g}, got "
                f"{self.center}. Nothing was done.": (
                    self.center is not None and not low <= self.center <= high
                ),
                "--unit person: what is bounded is one record or one label, not all records of a "
                "person. Nothing was done. Use --unit record with one record for each person.": (
                    self.unit is Unit.person
                ),
                f"With --unit label rewards are replaced: --neighbors {self.neighbors} is for "
                "whole records. Nothing was done. Leave it out, or use --unit record.": (
                    label and not replaces
                ),
            }
        )
        other = _MULTI_ARMED if linear else _LINEAR
        refuse_foreign(self, self.method, f"this is for --method {other}")
        if linear and self.context_columns is None:
            why = "without --context-columns the logs have no contexts"
            refuse_options(self, why, "contexts", "context_bound")
        if label:
            refuse_options(self, "a ball is for --unit record", "ball")
        if self.tested:
            why = "with --test-epsilon the test decides this"
            refuse_options(self, why, "temperature", "regularization", "center", "records")
        told, tests = self.epsilon is not None, self.tested
        settled = self.temperature is not None and self.regularization is not None
        _refuse_any(
            {
                "--action-columns names columns of --action-features: give both. Nothing was "
                "done.": self.action_columns is not None and self.action_features is None,
                "--test-epsilon is for --unit record: with --unit label the counts are public. "
                "Nothing was done.": tests and label,
                "--epsilon is needed with --test-epsilon. Nothing was done.": tests and not told,
                "--test-epsilon needs --delta above 0: the test may fail. Nothing was done.": (
                    tests and self.delta == 0
                ),
                "--test-delta belongs to --test-epsilon: give both. Nothing was done.": (
                    self.test_delta is not None and not tests
                ),
                "--epsilon is needed: the privacy loss allowed for all draws together (1 is "
                "strong, 4 is weak). Or give both --temperature and --regularization, and see "
                "with --dry-run what that spends. Nothing was done.": not (told or settled),
                "--epsilon with both --temperature and --regularization: these two alone "
                "decide what is spent. Nothing was done. Leave one of the three out; --budget "
                "limits the spend.": told and settled,
            }
        )
        for name in ("epsilon", "delta") if tests else ():
            part, whole = getattr(self, f"test_{name}"), getattr(self, name)
            if part is not None and not 0 < part < whole:
                raise UsageError(
                    f"--test-{name} is the part of --{name} that the test may spend: it must be "
                    f"above 0 and below {whole:g}, got {part!r}. Nothing was done."
                )
        self.refuse_folder()

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
    def test(self) -> MinimumCount:
        """Return the test of counts; half of delta if nothing was said."""
        assert self.test_epsilon is not None  # noqa: S101 - asked with ``tested`` only
        delta = self.delta / 2 if self.test_delta is None else self.test_delta
        return MinimumCount(self.test_epsilon, delta=delta)

    @property
    def rest(self) -> tuple[float, float]:
        """Return the epsilon and delta that the draws may spend beside a test, if there is one."""
        assert self.epsilon is not None  # noqa: S101 - refused before
        if not self.tested:
            return self.epsilon, self.delta
        test = self.test
        return (self.epsilon - test.epsilon) * _BELOW, (self.delta - test.delta) * _BELOW

    def share(self, questions: int = 1) -> float:
        """Return the bounded range that one draw may have."""
        epsilon, delta = self.rest
        return bounded_range_of_draws(
            epsilon, delta, self.draws * questions, neighbors=self.relation, adaptive=questions > 1
        )

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is: labels are replaced, records added or removed."""
        usual = Neighbors.replace_one if self.unit is Unit.label else Neighbors.add_remove
        return (self.neighbors or usual).relation


# What is read.


def _columns(option: str, given: str | None) -> tuple[ContextColumn, ...]:
    """Return the columns in a list with commas."""
    with named_option(option):
        names = () if given is None else (name.strip() for name in given.split(","))
        return columns_of("columns", names)


def _told_of(arms: Catalogue, known: Catalogue) -> Float[np.ndarray, "k q"]:
    """Return what a public file says of every arm, in the order of ``--arms``."""
    places = known.places(arms.names)
    if (places < 0).any():
        missing = arms.names[int(np.argmax(places < 0))]
        raise DataError(f"no record of the arm {missing!r}, which --arms has.")
    found: Float[np.ndarray, "k q"] = np.asarray(known.features)[places]
    return found


def _reference(settings: Bandit, catalogue: Catalogue) -> tuple[float, ...] | None:
    if settings.reference == _UNIFORM:
        return None
    source = Path(settings.reference)
    with named_option("--reference"):
        _, first = next(read_rows(source, unnamed=True), ("", {}))
        arm = settings.arm if settings.arm in first else "arm"
        known = Catalogue.read(source, arm=arm, features=[_PROBABILITY])
        if strays := [name for name in known.names if catalogue.place(name) < 0]:
            raise DataError(f"--arms has no arm {strays[0]!r}.")
        chances = _told_of(catalogue, known)[:, 0]
        if not ((chances >= 0) & (chances <= 1)).all():
            raise DataError("a probability must be a number from 0 to 1.")
        total = math.fsum(chances)
        if not abs(total - 1) <= _SUM_ATOL:
            raise DataError(f"the probabilities must sum to 1; they sum to {total!r}.")
    return tuple(chances.tolist())


# What is drawn from, and what that costs.


def _regularization(policy: WithheldPolicy) -> float:
    """Return the shrinkage of means, or the ridge of a regression."""
    held = policy.estimate
    return held.ridge if isinstance(held, BallRidge) else cast("ArmMeans", held).shrinkage


@dataclass(frozen=True, kw_only=True)
class _BanditRun(FolderRun):
    """A run that was prepared: nothing is spent, and nothing was written."""

    settings: Bandit  # what the user chose
    logs: BanditLogs  # raw records; confidential
    # Public contexts to draw for, shape (m, p); None where nothing was asked.
    contexts: Float[np.ndarray, "m p"] | None
    # Public starting probabilities of the arms; None for uniform ones.
    reference: tuple[float, ...] | None
    started: float  # when, by the clock of `_random`

    @property
    def questions(self) -> list[Any]:
        """Return the contexts to draw for, at least one; None is the context of zeros."""
        return [None] if self.contexts is None else list(self.contexts)

    @cached_property
    def policy(self) -> WithheldPolicy | None:
        """Return what will be drawn from, at no cost; None where a test comes first."""
        settings, count = self.settings, len(self.questions)
        if settings.tested:
            return None
        epsilon, ridge = settings.epsilon, settings.regularization
        # Labels alone are hidden: the design is public too, and decides how far a reward can move
        # the scores, so that the policy may be as sharp as that allows.
        sharp = settings.unit is Unit.label and epsilon is not None
        private = epsilon is not None and (settings.method == _MULTI_ARMED or not sharp)
        # penalty, records and the like are in the settings
        terms: dict[str, Any] = {
            "logs": self.logs,
            "unit": settings.unit.whose,
            "neighbors": settings.relation,
            "reference": self.reference,
            "epsilon": epsilon if private else None,
            "delta": settings.delta if private else 0.0,
        }
        if settings.method == _MULTI_ARMED:
            policy = terms_of(
                settings,
                multi_armed_policy,
                temperature=None if sharp else settings.temperature,
                shrinkage=ridge,
                center=None if settings.center is None else settings.center - settings.ends[0],
                **terms,
            )
            warmest = max(policy.temperature, settings.temperature or 0.0)
            return replace(policy, temperature=warmest) if sharp else policy
        policy = terms_of(
            settings,
            linear_policy,
            draws=settings.draws * count,
            adaptive=count > 1,
            temperature=1.0 if sharp else settings.temperature,
            ridge=ridge or _RIDGE if sharp else ridge,
            **terms,
        )
        if epsilon is None or (settings.temperature is not None and not sharp):
            return policy
        # What is asked is public, so that the policy may be as sharp as these very questions allow.
        held = policy.estimate
        widest = max(held.score_range(held.options(asked, None)) for asked in self.questions)
        least = least_temperature(widest, settings.share(count))
        return replace(policy, temperature=max(least, settings.temperature or 0.0))

    @cached_property
    def one(self) -> BoundedRangeEvent:
        """Return all draws of one question, or one draw of one question of several."""
        settings, questions = self.settings, self.questions
        if self.policy is None:
            return BoundedRangeEvent(settings.share(), draws=settings.draws)
        with quiet():
            widest = max(self.policy.bounded_range(question) for question in questions)
        return BoundedRangeEvent(widest, draws=1 if len(questions) > 1 else settings.draws)

    @property
    def _blocks(self) -> list[list[Any]]:
        """Return the questions of every entry, each as often as it is drawn for."""
        questions = self.questions
        if len(questions) == 1:
            return [questions]
        asked = [question for question in questions for _ in range(self.settings.draws)]
        return [asked[start : start + _BLOCK] for start in range(0, len(asked), _BLOCK)]

    @property
    def _epsilon(self) -> float:
        """Return the loss of everything together at the delta that the user allowed."""
        events: Counter[Event] = Counter({self.one: sum(map(len, self._blocks))})
        if self.policy is None:
            events[self.settings.test.event] += 1
        relation, delta = self.settings.relation, self.settings.delta
        return accounting.composed_epsilon(events, neighbors=relation, delta=delta)

    @property
    def limit(self) -> Limit:
        settings = self.settings
        epsilon = self._epsilon if settings.epsilon is None else settings.epsilon
        terms: dict[str, Any] = {"delta": settings.delta, "neighbors": settings.relation}
        return spending_limit(epsilon, settings.limits, unit=settings.unit.whose, **terms)

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        spend = {"would spend": f"epsilon={never_less(plan['spend'])}"}
        return spend | _told_rows(plan) | {"draws": f"{plan['draws']:,}"}

    def rows(self, told: dict[str, Any], ledger: Ledger) -> dict[str, str]:
        counted = sorted(Counter(told["draws"]).items(), key=lambda pair: -pair[1])
        drawn = [f"{' '.join(name.split())}: {times:,}" for name, times in counted[:_LISTED]]
        if len(counted) > _LISTED:
            drawn.append(f"and {len(counted) - _LISTED:,} more arms")
        seconds = told["seconds"]
        return {
            **_told_rows(told),
            "draws": f"{len(told['draws']):,}",
            "drawn": "\n".join(drawn),
            **ledger_rows(*ledger.head),
            "written": str(self.settings.out and self.settings.out / "result.json"),
            **({} if seconds is None else {"seconds": f"{seconds:.1f}"}),
        }

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        settings, policy = self.settings, self.policy
        promise = replace(
            self.limit.run,
            epsilon=self._epsilon,
            randomness=_random.entropy(settings.simulate_seed).randomness,
            caveats=() if policy is None else policy.estimate.caveats,
        )
        promise = weighed(promise, None, ledger.accepted)
        after = ledger
        try:
            if policy is None:
                after = with_spend(ledger, settings.test.event, promise)
                if after is not ledger:  # else its result, which was drawn, decides what follows
                    after.check(self.one, promise=promise)
            else:
                for block in self._blocks:
                    with quiet():
                        widest = max(policy.bounded_range(question) for question in block)
                    event = BoundedRangeEvent(widest, draws=self.one.draws)
                    after = with_spend(after, event, promise, len(block))
        except BudgetExceeded as error:
            if ledger.budget.delta >= settings.delta:
                raise
            raise BudgetExceeded(
                f"{error} This run was planned with delta={never_less(settings.delta)}, and "
                f"{ledger.path.name} allows delta={never_more(ledger.budget.delta)}: use that "
                "--delta, or change the limit with --budget-delta DELTA, which the ledger records."
            ) from None
        return {
            "spend": promise.epsilon,
            "temperature": None if policy is None else policy.temperature,
            "regularization": None if policy is None else _regularization(policy),
            "draws": settings.draws * len(self.questions),
            "per_draw": self._per_draw(),
            **describe_guarantee_and_caveats(promise),
        }

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the result of drawing, after each entry on the ledger."""
        settings, policy, seed = self.settings, self.policy, self.settings.simulate_seed
        logs, questions = self.logs, self.questions
        if policy is None:  # the test is spent here
            epsilon, delta = settings.rest
            policy = terms_of(  # draws, penalty and the test's epsilon are in the settings
                settings,
                count_tested_policy,
                logs=logs,
                neighbors=settings.relation,
                epsilon=epsilon,
                delta=delta,
                test_delta=settings.test.delta,
                reference=self.reference,
                ledger=ledger,
            )
            seed = None if seed is None else seed + 1  # the test had the first
        # Arms drawn for one context stand together, in the order of the contexts.
        with quiet():
            if len(questions) == 1:
                drawn = policy.draw_many(
                    settings.draws, questions[0], ledger=ledger, simulate_seed=seed
                )
            else:
                blocks = self._blocks
                starts = [None if seed is None else seed + at * _BLOCK for at in range(len(blocks))]
                pairs = zip(blocks, starts, strict=True)
                parts = [policy.draw_each(b, ledger=ledger, simulate_seed=s) for b, s in pairs]
                drawn = np.concatenate(parts)
        # How far any log could move the odds of two arms from the reference's, where that is known.
        held, (low, high), bound = policy.estimate, settings.ends, None
        if isinstance(held, ScreenedMeans) and (held.least_count or 0) < 1:
            bound = 1.0  # all draws are from the reference
        elif settings.method == _MULTI_ARMED and not settings.penalty:
            bound = math.exp(min((high - low) / policy.temperature, _FARTHEST))
        timed = settings.unit is Unit.label  # else a time tells how many records there were
        result: dict[str, Any] = finite(
            {
                "format": _FORMAT,
                "version": _VERSION,
                **describe_guarantee_and_caveats(paid_here(ledger, settings.delta)),
                "temperature": policy.temperature,
                "regularization": _regularization(policy),
                "draws": [logs.catalogue.names[arm] for arm in drawn.tolist()],
                "per_draw": self._per_draw(policy),
                "odds_bound": bound,
                "seconds": round(_random.clock() - self.started, 3) if timed else None,
            }
        )
        return result, {}

    def _per_draw(self, drawn_from: WithheldPolicy | None = None) -> dict[str, Any]:
        """Return what one draw costs, and what is public of how it came about."""
        told = describe_draw(self.one.bounded_range)
        if self.logs.context_columns:
            given = self.contexts
            told["contexts"] = "zeros" if given is None else len(given)
        if self.policy is None:
            test = self.settings.test
            told["test"] = {"epsilon": test.epsilon, "delta": test.delta}
            if drawn_from is not None:  # what the test found was paid for
                held = drawn_from.estimate
                assert isinstance(held, ScreenedMeans)  # noqa: S101 - counts are of arms
                with quiet():
                    size = drawn_from.bounded_range()
                told |= describe_draw(size) | {"least_count": held.least_count}
        return told


def _told_rows(told: Mapping[str, Any]) -> dict[str, str]:
    one = told["per_draw"]
    rows = {
        **promise_rows(told),
        "hidden": _HIDDEN[told["guarantee"]["unit"]],
        "each draw": f"epsilon={never_less(one['epsilon'])}",
    }
    if test := one.get("test"):
        spent, delta = never_less(test["epsilon"]), never_less(test["delta"])
        rows["test of counts"] = f"epsilon={spent}, delta={delta}"
    if "least_count" in one:
        least = one["least_count"]
        rare = "an arm may be too rare, so all draws are from the reference"
        enough = f"every arm has at least {least:,} records beside any one"
        rows["test of counts"] += f"; {enough if least >= 1 else rare}"
    rows["policy"] = (
        "as sharp as the test allows"
        if told["temperature"] is None
        else f"temperature {told['temperature']:.6g}, regularization {told['regularization']:.6g}"
    )
    if given := one.get("contexts"):
        zeros = "one, of zeros (--contexts FILE draws for others)"
        rows["contexts"] = (
            zeros if given == "zeros" else f"{given:,}, drawn for one after the other"
        )
    return rows


def prepare(settings: Bandit) -> _BanditRun:
    """Return the run of what is read, checked before anything is spent."""
    started = _random.clock()
    for option, path in settings.public.items():
        own = False
        with suppress(OSError, ValueError):
            own = path is not None and path.samefile(settings.logs)
        if own:
            raise UsageError(
                f"{option} must not be the file of the logs: what was pulled, and for whom, "
                "would be released. Nothing was read. Give a file that is public."
            )
    with named_option("--arms"):
        catalogue = Catalogue.of(settings.arms or "")
    if settings.action_features is not None:
        column = (settings.arms or "").rpartition(":")[2]
        column = settings.arm if column.isdigit() else column
        listed = _columns("--action-columns", settings.action_columns)
        with named_option("--action-features"):
            known = Catalogue.read(settings.action_features, arm=column, features=listed or True)
            catalogue = Catalogue(catalogue.names, features=_told_of(catalogue, known))
    reference = _reference(settings, catalogue)
    with Bar.shown("Reading") as bar:
        logs = terms_of(
            settings,
            read_bandit_logs,
            source=settings.logs,
            hides_records=settings.unit is not Unit.label,
            catalogue=catalogue,
            context_columns=_columns("--context-columns", settings.context_columns),
            progress=bar,
        )
    contexts = None
    if settings.contexts is not None:
        with named_option("--contexts"):
            contexts = logs.contexts_of(settings.contexts)
            if not len(contexts):
                raise DataError("no context in it. Nothing was drawn.")
    return _BanditRun(
        settings=settings, logs=logs, contexts=contexts, reference=reference, started=started
    )
