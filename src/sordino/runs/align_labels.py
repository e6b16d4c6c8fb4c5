"""Noise on labels: each is randomized by a coin, unless it arrived so; what is learned is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from sordino import _random
from sordino.errors import DataError, LedgerMismatch, UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, RandomizedResponse
from sordino.preferences.features import Matrix
from sordino.preferences.pairs import Pairs, PrivatePairs, Randomized, read_manifest
from sordino.preferences.rankings import PrivateChoices, Rankings
from sordino.privacy.guarantee import ADAPTIVE_QUESTIONS, never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import (
    plan_answers,
    privatize,
    privatize_choices,
    terms_of_choices,
)
from sordino.privatization.randomization import Randomization, memo_keys, questions_of_one_person
from sordino.reporting.result import (
    calibration_bins,
    describe_fit_settings,
    describe_guarantee_and_caveats,
    measure_confidence,
    measure_decisive,
    measure_policy,
    measure_reward,
    predict_utility,
)
from sordino.rewards.evidence import Released
from sordino.rewards.finite import describe_class
from sordino.rewards.metrics import cross_fit
from sordino.rewards.noise_forecast import Picture, of_answers
from sordino.rewards.ranking_fit import fit_choices
from sordino.rewards.reward_fit import fit

from .align_run import (
    NO_CHOICE,
    NO_METRICS,
    BallotRun,
    Learned,
    LearningRun,
    describe_policy,
    make_policy,
    parts_of,
    show_examples,
)
from .progress import Bar
from .run import Limit, limit_of_private, spending_limit
from .settings import Unit, choose_coin

_LEAST_LEFT = 12


def _plan_received(
    settings: Any, answers: Randomized, source: Path | None, ledger: Ledger
) -> dict[str, Any]:
    """Return what is promised of answers that arrived private; refuse to promise less of them."""
    promise, wanted = answers.guarantee, []
    if settings.epsilon is not None and settings.epsilon < promise.epsilon:
        wanted.append(f"--epsilon {settings.epsilon!r}")
    if settings.unit is Unit.person and promise.unit != "person":
        wanted.append("--unit person")
    if wanted:
        options = " and ".join(text.partition(" ")[0] for text in wanted)
        raise UsageError(
            f"These answers were randomized with epsilon={never_less(promise.epsilon)} per "
            f"{promise.unit}; {' and '.join(wanted)} cannot be promised of them any more. "
            f"Nothing was done. Leave {options} out."
        )
    if settings.cap is not None:
        raise UsageError(
            "--cap chooses among raw judgments, before they are randomized; these answers "
            "are randomized already. Nothing was done. Leave it out."
        )
    if source is not None:
        coins = memo_keys(answers.keys, answers.persons)
        ledger.check_receive(read_manifest(source), coins or None)
    elif not set(answers.release_ids) <= {row.release_id for row in ledger.rows}:
        raise LedgerMismatch(
            f"{ledger.path.name} does not say what paid for these answers. Nothing was "
            "done. Give the ledger that they were randomized on, or their file."
        )
    return {"spend": 0.0, **describe_guarantee_and_caveats(promise)}


@dataclass(frozen=True, kw_only=True)
class Randomizing:
    """Judgments that are randomized one by one, here or before, for whatever is made of them."""

    settings: Any  # of a run: what may be spent, on whom, with which cap and seed
    pairs: Pairs | Rankings | Randomized
    source: Path | None  # the file that answers which are private already lie in

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger: the first spend, or what arrived private."""
        settings, pairs = self.settings, self.pairs
        if isinstance(pairs, Randomized):
            return limit_of_private(pairs.guarantee, settings.limits)
        return spending_limit(settings.total, settings.limits, unit=settings.unit.counted)

    @cached_property
    def coin(self) -> RandomizedResponse:
        """Return the coin of one label, or the die of one ballot: how many it has is public."""
        settings, data = self.settings, cast("Pairs | Rankings", self.pairs)
        terms: dict[str, Any] = {"unit": settings.unit, "cap": settings.cap}
        if isinstance(data, Rankings):
            terms["make"] = partial(KaryRandomizedResponse, categories=int(data.sizes.max()))
        return choose_coin(settings.total, **terms, most=lambda: questions_of_one_person(data))

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what a run would spend; nothing is touched."""
        settings, pairs = self.settings, self.pairs
        if isinstance(pairs, Randomized):  # what is private already costs nothing
            counts = {"pairs": len(pairs), "dropped": getattr(pairs, "dropped", 0)}
            return counts | _plan_received(settings, pairs, self.source, ledger)
        if isinstance(pairs, Rankings):
            die = cast("KaryRandomizedResponse", self.coin)
            entropy = _random.entropy(settings.simulate_seed)
            choices = terms_of_choices(pairs, die, ledger, entropy)
            ledger.check(die.event, **choices)
            promise, people = choices["promise"], set(pairs.persons or ())
            most = {"persons": len(people), "labels_per_person": choices["count"]}
            return {
                "spend": promise.epsilon,
                **describe_guarantee_and_caveats(promise),
                "epsilon_per_label": die.realized_epsilon,
                **(most if people else {}),
            }
        terms = {"simulate_seed": settings.simulate_seed, "cap": settings.cap}
        randomization = Randomization(self.coin, ledger, on_device=False, **terms)
        planned = plan_answers(pairs, randomization)
        if settings.cap and planned["capped_questions"]:
            questions = len(set(zip(pairs.persons or (), pairs.keys, strict=True)))
            left = questions - planned["capped_questions"]
            if left < _LEAST_LEFT:  # whichever are chosen, none could be held out
                raise DataError(
                    f"A cap of {settings.cap} leaves {left} answers of {planned['persons']} "
                    "persons, which are too few to measure anything on held-out ones; a dozen is "
                    "the least. Nothing was spent. Raise --cap, or take in more people."
                )
        return planned

    def answers(self, ledger: Ledger) -> Randomized:
        """Return randomized answers, after paying for those that were raw."""
        settings, data = self.settings, self.pairs
        terms: dict[str, Any] = {"ledger": ledger, "simulate_seed": settings.simulate_seed}
        if isinstance(data, Rankings):
            return privatize_choices(data, cast("KaryRandomizedResponse", self.coin), **terms)
        if isinstance(data, Pairs):
            return privatize(data, self.coin, cap=settings.cap, **terms)
        if self.source is None:
            return data
        # tied to the entry that says where they come from; this ledger's are
        coins, manifest = memo_keys(data.keys, data.persons), read_manifest(self.source)
        return data.received(ledger.receive(self.source, manifest, answers=coins or None))


class _OnLabels(LearningRun):
    @cached_property
    def randomizing(self) -> Randomizing:
        """Return the judgments, with what is done to each of them."""
        data = cast("Pairs | Rankings | Randomized", self.inputs.data)
        return Randomizing(settings=self.settings, pairs=data, source=self.inputs.source)

    @property
    def limit(self) -> Limit:
        """Return the limit of a new ledger: the first spend, or what arrived private."""
        return self.randomizing.limit


class LabelNoise(_OnLabels):
    """A run on answers that are randomized one by one, here or before."""

    @property
    def _pairs(self) -> Pairs | PrivatePairs:
        assert isinstance(self.inputs.data, Pairs | PrivatePairs)  # noqa: S101 - for the type checker
        return self.inputs.data

    def picture(self, rows: Matrix) -> Picture:
        """Return the fit of randomized answers, their number known."""
        pairs = self._pairs
        assert isinstance(pairs, Pairs)  # noqa: S101 - what is private already needs no forecast
        flips = self.randomizing.coin.flip_probability
        n, ridge = self.counted(pairs), self.settings.ridge
        return of_answers(rows, n, flip_probability=flips, ridge=ridge)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what a run would spend; nothing is touched."""
        mine = self._pairs
        chosen = isinstance(mine, PrivatePairs) and ADAPTIVE_QUESTIONS in mine.guarantee.caveats
        if chosen and self.settings.confidence is not None:
            raise UsageError(
                "--confidence: which questions were asked depends on earlier answers, and no "
                "confidence set for fixed questions holds then. Nothing was done. Leave it out, or "
                "use `sordino online STUDY`, whose set holds for such questions."
            )
        if (known := self.settings.reward_class) is not None:  # it scores whatever will be asked
            self._pairs.refuse_alone()
            for pairs in filter(None, (self._pairs, self.inputs.public)):
                pairs.differences(known)
        return self.randomizing.plan(ledger)

    def learn(self, ledger: Ledger) -> Learned:
        """Return what randomized answers teach; raw ones are randomized first."""
        settings, inputs, pairs = self.settings, self.inputs, self._pairs
        private = cast("PrivatePairs", self.randomizing.answers(ledger))
        known = settings.reward_class
        fitting: dict[str, Any] = {
            "ridge": settings.ridge,
            "ball": settings.ball,
            # a confidence set is about the debiased estimate
            "method": settings.method if settings.confidence is None else "debiased",
        }
        with Bar.shown("Fitting") as bar:
            features = known or self.suited(self.text_features, private)
            released = Released.of_answers(private, features)
            design, level = released.evidence, settings.confidence
            reward = fit(released, **fitting) if known is None else known.fit(private)
            if known is not None and level is None:
                reward = replace(reward, ellipsoid=None)
            held_out = cross_fit(design, **fitting, finite=known is not None, progress=bar)
        policy = make_policy(reward, **settings.policy_terms)
        arrived = private if isinstance(pairs, PrivatePairs) else None
        people = {} if private.persons is None else {"persons": len(set(private.persons))}
        rows = design.differences
        parts = {
            "mechanism": {
                "name": "randomized-response",
                "flip_probability": private.flip_probability,
                "epsilon_per_label": private.label_epsilon,
            },
            "data": {
                "name": ledger.data,
                **({"judged": "answers"} if private.alone else inputs.about),
                "pairs": len(private),
                "dropped": private.dropped,
                "capped": len(pairs) - len(private),
                **people,
            },
            "reward": {
                **measure_reward(held_out, single=private.alone),
                **describe_fit_settings(reward, asked=settings.method),
            },
            # Between two answers pessimism changes nothing: both lie equally far from their mean.
            "policy": {
                **describe_policy(policy),
                **(NO_CHOICE if private.alone else measure_policy(held_out, policy.temperature)),
                "temperature": policy.temperature,
                "pessimism": measure_confidence(policy, private),
            },
            **(
                {"class": describe_class(reward, level)}
                if known is not None
                else {
                    "utility": predict_utility(len(design), rows, chosen=private.label_epsilon),
                    "decisive": measure_decisive(reward, rows, source="comparisons"),
                }
            ),
            "examples": show_examples(policy, public=inputs.public, released=arrived),
            "calibration": calibration_bins(
                held_out.differences, held_out.answers, held_out.flip_probability
            ),
        }
        return reward, policy, parts


class ChoiceNoise(BallotRun, _OnLabels):
    """A run on first choices of ballots, each of which a die keeps or replaces by another one."""

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        """Return what a run would spend; nothing is touched."""
        return self.randomizing.plan(ledger) | self.counts()

    def learn(self, ledger: Ledger) -> Learned:
        """Return what randomized first choices teach; raw ones are randomized first."""
        settings = self.settings
        private = cast("PrivateChoices", self.randomizing.answers(ledger))
        terms: dict[str, Any] = {"ridge": settings.ridge, "ball": settings.ball}
        reward = fit_choices(private, features=self.ballot_features, **terms)
        policy = make_policy(reward, **settings.policy_terms)
        people = {} if private.persons is None else {"persons": len(set(private.persons))}
        mechanism = {
            "name": KaryRandomizedResponse.name,
            "categories": private.categories,
            "flip_probability": private.flip_probability,
            "epsilon_per_label": private.label_epsilon,
        }
        told = {"mechanism": mechanism, **self.described(reward, policy)}
        about = {"name": ledger.data, **people}
        parts = parts_of(reward, policy, told, about=about, metrics=NO_METRICS)
        return reward, policy, parts
