"""Online alignment as one run: plan, pay once, ask round by round, publish.

People are those of a made-up world, or those who judged pairs before. What they are asked depends
on randomized answers alone; of recorded pairs each is asked at most once, and its coin is tossed
before the first round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _random
from sordino._files import sha256_of, to_json
from sordino.algorithms.online_alignment import (
    EXPLORATIONS,
    Play,
    align_online,
    learned_in,
    promise_of_rounds,
)
from sordino.auditing.runs.replay import REWARD
from sordino.certificates import certify
from sordino.environments.preference_worlds import (
    HardInstance,
    LinearPreferences,
    generator,
)
from sordino.environments.values import ActionFeatures, Actions, measured_policy
from sordino.errors import DataError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.policies.gibbs import gibbs_policy
from sordino.preferences.features import CLASS, Features, HashedText, UnreadClass, usual_features
from sordino.preferences.files import read_rows
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_fit_settings, describe_guarantee_and_caveats
from sordino.rewards.finite import FiniteRewards, describe_class, read_weights

from .align_labels import Randomizing
from .align_run import NO_CHOICE, NO_METRICS, certified_files, describe_policy
from .align_settings import ClassFile, Epsilon, Promised
from .run import FolderRun, Limit, spending_limit
from .settings import (
    Argument,
    FitOption,
    IntoFolder,
    LabelUnit,
    Reading,
    Unit,
    answers_of_study,
    named_option,
    refuse_given,
    refuse_options,
    refuse_records,
    terms_of,
)

_WORLDS: Final = ("linear", "hard")
_FRESH: Final = 3_000  # made-up contexts on which a policy is held against the truth
_ACTIONS, _RARE, _GAP = 8, 4.0, 0.3  # of linear; of hard 1/chance of the rare answer, and gap


@dataclass(frozen=True, kw_only=True)
class Online(Promised, Reading, IntoFolder):
    """What the user chose for one run; None where an option was left out."""

    title = "sordino online"
    cap: ClassVar[None] = None  # each recorded judgment may be asked for

    world: str = Argument(
        "linear or hard, made-up people who follow a known reward; or a file of judged pairs "
        "(raw, or randomized already), of which each is asked for at most once; or the TOML file "
        "of a study (sordino collect), of which all answers so far are taken.",
        metavar="WORLD|DATA|STUDY",
    )
    rounds: int = FitOption("How many rounds, in each of which one may be asked.", 1000, min=1)
    epsilon: Epsilon = None
    unit: LabelUnit = Unit.label
    exploration: str = FitOption(
        "What the two answers of a round are drawn from: estimate and estimate with bonus; none, "
        "symmetric: both without, or with it; uniform.",
        "optimistic",
        choices=tuple(EXPLORATIONS),
    )
    temperature: float = FitOption("KL strength of the policies, in units of reward.", 0.5)
    candidates: ClassFile = None
    ball: float = FitOption("Bound on the norm of the weights, chosen before any answer.", 1.0)
    ridge: float = FitOption("Penalty of the fit.", 1.0)
    scale: float = FitOption("Share of the bonus that is used; below 1 it is a heuristic.", 1.0)
    bonus_bound: float | None = FitOption("Where the bonus is cut, in units of reward.")
    confidence: float = FitOption("How often the truth is in the confidence set, always.", 0.95)
    dimension: int | None = FitOption(
        "Number of features: 4 of a world (of hard: contexts); of texts 28, without words.", min=1
    )
    size: float | None = FitOption("Of linear: norm of the true weights. 1 by default.")
    world_seed: int = FitOption("Seed of a world, or of the order of recorded pairs.", 0, min=0)

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        if self.made_up or self.epsilon is not None:
            RandomizedResponse(self.total)
        refuse_records(self.unit)
        if self.made_up and self.unit is Unit.person:
            raise UsageError(
                "--unit person: the people of a made-up world are not told apart. Nothing was "
                "done. Use --unit label."
            )
        if not self.made_up and not Path(self.world).exists():
            raise UsageError(
                f"There is no world and no file {Path(self.world).name!r}. Nothing was done. Give "
                "linear, hard, or a file of judged pairs."
            )
        if self.world != "linear":
            refuse_options(self, "it is of the world linear", "size")
        if self.live:
            usual = {field.name: field.default for field in fields(self)}
            asking = ("rounds", "exploration", "scale", "bonus_bound", "world_seed")
            given = {name: getattr(self, name) for name in asking}
            changed = {
                f"--{name.replace('_', '-')}": value
                for name, value in given.items()
                if value != usual[name]
            }
            refuse_given(changed, "a study has asked already, and all its answers are taken")
        self.refuse_folder()

    @property
    def made_up(self) -> bool:
        """Return whether nobody is behind it."""
        return self.world in _WORLDS

    @property
    def live(self) -> bool:
        """Return whether people are asked on a page, and were asked already."""
        return self.world.endswith(".toml")

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public file that says among which rewards is chosen."""
        return (self.candidates,)


@dataclass(kw_only=True)
class _Recorded:
    """Two answers in each round that somebody compared, and what a coin made of that."""

    texts: ActionFeatures  # features of both answers, in the order of rounds
    answers: Actions
    feature_bound: float
    read: int = 0

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the next n questions; their order was drawn from a public seed."""
        del rng
        self.read += n
        return self.texts[self.read - n : self.read]

    def recorded(self, rounds: Actions, first: Actions) -> Actions:
        """Return whether the first action was preferred, as it was randomized once."""
        answers = self.answers[rounds]
        return np.asarray(np.where(first == 0, answers, 1 - answers))


@dataclass(frozen=True, kw_only=True)
class _OnlineRun(FolderRun):
    """Rounds against a made-up world, or against recorded answers."""

    settings: Online
    pairs: Pairs | PrivatePairs | None  # None of a made-up world
    source: Path | None  # the file that they lie in
    started: float

    @property
    def data(self) -> str | None:
        # a world has nothing in common with any data
        made_up = f"made up: {self.settings.world}" if self.settings.made_up else None
        return self.settings.data or made_up

    @cached_property
    def randomizing(self) -> Randomizing:
        """Return the recorded judgments, with what is done to each of them."""
        assert self.pairs is not None  # noqa: S101 - for the type checker
        private = isinstance(self.pairs, PrivatePairs)
        source = self.source if private else None
        return Randomizing(settings=self.settings, pairs=self.pairs, source=source)

    @property
    def limit(self) -> Limit:
        if self.pairs is not None:
            return self.randomizing.limit
        settings = self.settings
        return spending_limit(settings.total, settings.limits, unit="label")

    @property
    def rounds(self) -> int:
        """Return how many rounds there are; in a study as many as were answered."""
        live = self.settings.live and self.pairs is not None
        return int(self.pairs.first_rows().sum()) if live else self.settings.rounds  # type: ignore[union-attr]

    @cached_property
    def world(self) -> LinearPreferences | HardInstance:
        """Return the made-up world."""
        settings = self.settings
        d, seed = settings.dimension or 4, settings.world_seed
        if settings.world == "linear":
            size = 1.0 if settings.size is None else settings.size
            return LinearPreferences.random(dimension=d, actions=_ACTIONS, size=size, seed=seed)
        heat, terms = settings.temperature, {"concentrability": _RARE}
        level = HardInstance.balanced_level(temperature=heat, **terms)
        return HardInstance.random(contexts=d, gap=_GAP, level=level, seed=seed, **terms)

    @cached_property
    def features(self) -> Features | None:
        """Return what a reward reads texts with; of a world, the names of its candidates."""
        path, dimension = self.settings.candidates, self.settings.dimension
        if self.pairs is None:
            names = {"kind": CLASS, "names": sorted(self.candidates or {})}
            return UnreadClass({**names, "digest": sha256_of(path)}) if path else None
        if path is not None:
            with named_option("--class"):
                return FiniteRewards.read(path)
        return usual_features(None) if dimension is None else HashedText(dimension)

    @cached_property
    def candidates(self) -> Mapping[str, Callable[[ActionFeatures], Any]] | None:
        """Return the rewards of a class as functions of features; None for all linear ones."""
        path = self.settings.candidates
        if path is None:
            return None
        if isinstance(self.pairs, Pairs | PrivatePairs):
            names = cast("FiniteRewards", self.features).names
            return {name: partial(np.take, indices=at, axis=-1) for at, name in enumerate(names)}
        with named_option("--class"):
            weights = read_weights(list(read_rows(path)))
        d = self.world.contexts(generator(0), 1).shape[-1]
        if len(next(iter(weights.values()))) != d:
            raise DataError(f"--class: this world has {d} features. Nothing was done.")
        return {name: partial(_halfway, one) for name, one in weights.items()}

    def play(self, pairs: Pairs | PrivatePairs | None) -> Play:
        """Return the rounds, checked and ready; of raw pairs no label is looked at."""
        settings, world = self.settings, cast("Any", None)
        if pairs is None:
            world, loss = self.world, settings.total
        else:
            features = cast("Features", self.features)
            each = np.flatnonzero(pairs.first_rows())
            order = generator(settings.world_seed).permutation(each)
            if self.rounds > len(order):
                raise UsageError(
                    f"--rounds {self.rounds}: {len(order)} judgments are recorded, and nobody "
                    "is asked what they were asked before: the same answer again would teach "
                    "nothing. Nothing was done. Give fewer rounds."
                )
            asked, first, second = (
                [column[at] for at in order]
                for column in (pairs.prompts, pairs.first, pairs.second)
            )
            sides = [csr_array(features.transform(asked, side)) for side in (first, second)]
            answers = np.zeros(len(order), np.int8)
            if isinstance(pairs, PrivatePairs):
                answers, loss = pairs.answers[order], pairs.label_epsilon
            else:
                loss = self.randomizing.coin.epsilon
            world = _Recorded(
                texts=np.stack([side.toarray() for side in sides], axis=1),
                answers=answers,
                feature_bound=features.feature_bound,
            )
        terms: dict[str, Any] = {"candidates": self.candidates, "epsilon": loss}
        return terms_of(settings, Play, world=world, **terms)

    def plan(self, ledger: Ledger) -> dict[str, Any]:
        run = self.play(self.pairs)
        known = {"rounds": self.rounds, "heuristic": run.heuristic}
        if self.pairs is not None:
            return self.randomizing.plan(ledger) | known
        promise = promise_of_rounds(run, ledger)
        ledger.check(run.coin.event, promise=promise)
        return {"spend": promise.epsilon, **describe_guarantee_and_caveats(promise), **known}

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        settings = self.settings
        if self.pairs is None:
            terms: dict[str, Any] = {"candidates": self.candidates, "epsilon": settings.total}
            found = terms_of(settings, align_online, world=self.world, ledger=ledger, **terms)
        else:
            private = cast("PrivatePairs", self.randomizing.answers(ledger))
            run = self.play(private)
            if settings.live:
                encoded = run.learner.encode(run.contexts.peek(self.rounds))
                answers = cast("_Recorded", run.contexts.world).answers
                run.learn_from(encoded[:, 0] - encoded[:, 1], answers)
            else:
                run.play(settings.rounds)
            found = learned_in(run, private)
        reward = replace(found.reward, features=self.features)
        policy = gibbs_policy(reward, temperature=settings.temperature)
        certificate = certify(policy, ledger, for_study=True)
        model, coin = to_json(reward.to_dict()), cast("RandomizedResponse", found.run.coin)
        truth = {}
        if self.pairs is None:
            contexts = self.world.contexts(generator(settings.world_seed + 1), _FRESH)
            rewards, base = self.world.rewards(contexts), self.world.reference(contexts)
            chances = found.policy.probabilities(contexts, reference=base)
            truth = {"truth": measured_policy(chances, rewards, settings.temperature, base)}
        among, fitted = describe_class(reward, None), describe_fit_settings(reward)
        del fitted["method_asked"], fitted["weight_standard_error"]
        parts = {
            "noise": "labels",
            "mechanism": {
                "name": "randomized-response",
                "flip_probability": coin.flip_probability,
                "epsilon_per_label": coin.epsilon,
            },
            "data": {"name": ledger.data, "pairs": found.asked, "dropped": 0, "capped": 0},
            "reward": NO_METRICS | fitted,
            "policy": describe_policy(policy) | NO_CHOICE | {"temperature": policy.temperature},
            **({} if among is None else {"class": among}),
            "online": {"world": settings.world if settings.made_up else None, **found.told},
            **truth,
        }
        return certified_files(certificate, ledger, parts, {REWARD: model}, started=self.started)

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        return super().plan_rows(plan) | {"rounds": f"{plan['rounds']:,}"}


def _halfway(weights: Float[np.ndarray, " d"], features: ActionFeatures) -> Any:
    return np.clip(features @ weights + 0.5, 0, 1)  # of rounding


def prepare(settings: Online) -> _OnlineRun:
    """Return the run against a made-up world, or against the pairs of a file."""
    started, pairs, source = _random.clock(), None, None
    if not settings.made_up:
        path = Path(settings.world)
        source = answers_of_study(path) if settings.live else path
        pairs = settings.read(source)
        pairs.refuse_alone()
    return _OnlineRun(settings=settings, pairs=pairs, source=source, started=started)
