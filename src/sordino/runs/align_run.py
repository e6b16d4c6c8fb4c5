"""One run of ``align``: what it reads, the policy it makes of what is learned, what it writes."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino import _random
from sordino._files import finite, to_json
from sordino._version import __version__
from sordino.auditing.runs.replay import RESULT_FORMAT, RESULT_VERSION, REWARD
from sordino.certificates import Certificate, certify
from sordino.environments.annotators import TrueReward
from sordino.errors import UsageError
from sordino.policies.gibbs import (
    CandidatePolicy,
    ConfidencePolicy,
    gibbs_policy,
    pessimistic_policy,
)
from sordino.preferences.chunks import Chunks
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import Features, HashedText, Matrix
from sordino.preferences.pairs import Pairs, PrivatePairs
from sordino.preferences.rankings import PrivateChoices, Rankings, Slates
from sordino.preferences.schemas import TRAJECTORIES
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, PUBLIC_OVERLAP
from sordino.privacy.ledger import Ledger
from sordino.reporting.html import render_report
from sordino.reporting.result import (
    describe_fit_settings,
    describe_guarantee_and_caveats,
    describe_ledger_rows,
    measure_examples,
    measure_public,
    measure_truth,
)
from sordino.reporting.summary import summarize
from sordino.rewards.model import RewardModel
from sordino.rewards.noise_forecast import Picture

from .align_settings import Align
from .run import FolderRun, Limit, spending_limit
from .tables import forecast_rows

NO_METRICS = {  # what is said of a reward where nothing paid for more
    f"{metric}{of}": None
    for metric in ("accuracy", "negative_log_likelihood", "calibration_slope")
    for of in ("", "_standard_error")
}

NO_WINS = {"win_rate": None, "win_rate_interval": None}
"""What is said of a policy's wins where nothing paid for them."""

NO_CHOICE = {**NO_WINS, "kl": None}
"""And where single answers were judged: nobody chose between two."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a run reads, checked before anything is spent, and how pairs were read."""

    data: Pairs | PrivatePairs | Rankings | PrivateChoices | Chunks
    public: Pairs | None = None
    shares: bool = False  # whether the public file has questions of the private one
    truth: TrueReward | None = None
    source: Path | None = None
    # Of trajectories, of which ``data`` has the summed differences: what is public of their steps.
    steps: Trajectories | None = None

    @property
    def reach(self) -> float | None:
        """Return 2HL, which no difference of sums exceeds; None if steps are not bounded."""
        return None if self.steps is None else self.steps.difference_bound

    @property
    def about(self) -> dict[str, Any]:
        """Return what a result says of what was judged, where it is no pair of texts."""
        if self.steps is None:
            return {}
        told = {"horizon": self.steps.horizon, "step_bound": self.steps.feature_bound}
        return {"judged": TRAJECTORIES, **told}


Learned = tuple[RewardModel, CandidatePolicy, dict[str, Any]]
"""A private reward, the policy made from it, and what a result says of this kind of noise alone."""


@dataclass(frozen=True, kw_only=True)
class AlignRun(FolderRun):
    """A run on judgments, wherever its noise is."""

    settings: Align
    inputs: Inputs
    started: float  # when, by the clock of `_random`
    forecast: Mapping[str, Any] | None = None  # of each kind of noise, where a plan shows it

    def planned(self) -> dict[str, Any]:
        """Return what the run would spend, and what it and the other kinds of noise would teach."""
        told = super().planned()
        return told if self.forecast is None else told | {"forecast": dict(self.forecast)}

    @property
    def _chosen(self) -> dict[str, dict[str, object]]:
        """Return what --noise auto knew when it took this kind, for the result; no text."""
        if self.forecast is None:
            return {}
        return {"chosen": {name: self.forecast[name] for name in ("from", "kinds")}}

    def plan_rows(self, plan: dict[str, Any]) -> dict[str, str]:
        """Return a plan in lines."""
        rows = super().plan_rows(plan)
        return forecast_rows(plan) | rows

    @property
    def text_features(self) -> HashedText:
        """Return what texts are read with."""
        return HashedText(self.settings.text_dimension)

    @property
    def dimension(self) -> int | None:
        """Return the length of vectors, which no option decides; None for texts."""
        data = self.inputs.data
        if isinstance(data, Chunks):
            return data.dimension
        given = getattr(data, "given", None)
        return None if given is None or isinstance(data, Slates) else int(given.shape[1])

    def suited(self, read: HashedText, data: Comparisons | Chunks, *more: Any) -> Features | None:
        """Return the features of a reward by what texts are read with; None for vectors."""
        return None if self.dimension is not None else self.settings.suited(read, data, *more)

    @property
    def clip(self) -> float:
        """Return the norm to which differences of hidden records are shortened."""
        # Of trajectories it is by default what no difference of sums exceeds: none is shortened.
        said, files = self.settings.bound is not None, isinstance(self.inputs.data, Chunks)
        if said or files or self.dimension is None:
            return self.settings.clip
        if (reach := self.inputs.reach) is None:
            raise UsageError(
                "--bound (or, of trajectories, --step-bound) is needed with --unit record: the "
                "norm to which hidden differences are shortened, which no record may tell. "
                "Nothing was done."
            )
        return reach

    @property
    def pictured(self) -> bool:
        """Return whether how many judgments there are is known, so that a fit can be pictured."""
        data = self.inputs.data
        if self.settings.candidates is not None:
            return False
        if isinstance(data, Chunks):  # of one person not all rows may count
            return data.rows is not None and self.settings.cap is None
        return isinstance(data, Pairs)

    @abstractmethod
    def picture(self, rows: Matrix) -> Picture:
        """Return the fit that this run would make of judgments with feature differences as these.

        Nothing that is private enters: of what is hidden the sizes alone, if those are public.
        """

    def counted(self, data: Pairs) -> int:
        """Return how many judgments count, under the cap for one person; it is public."""
        most, people = self.settings.cap, data.people(most=self.settings.cap)
        return len(data) if most is None or people is None else int(people.counts.sum())

    @property
    def request(self) -> str | None:
        """Return the name of the run; data in memory have none that another run could give."""
        return self.settings.request if self.settings.prefs else None

    @property
    def overlap(self) -> tuple[str, ...]:
        """Return the caveat of a public file that shares questions with the private one."""
        return (PUBLIC_OVERLAP,) if self.inputs.shares else ()

    @property
    def allowed(self) -> float:
        """Return the epsilon that a curator's new ledger allows."""
        return self.settings.total

    @property
    def limit(self) -> Limit:
        """Return the limit of a curator's new ledger."""
        settings = self.settings
        terms: dict[str, Any] = {"delta": settings.failure, "neighbors": settings.relation}
        return spending_limit(self.allowed, settings.limits, unit=settings.unit.whose, **terms)


@dataclass(frozen=True, kw_only=True)
class LearningRun(AlignRun):
    """A run that releases a reward, and a policy made of it."""

    @abstractmethod
    def learn(self, ledger: Ledger) -> Learned:
        """Spend, and return what that teaches."""

    def draw(self, ledger: Ledger) -> tuple[dict[str, Any], dict[str, str]]:
        """Learn, measure what public files allow, and certify."""
        reward, policy, parts = self.learn(ledger)
        certificate = certify(policy, ledger, for_study=True)
        model = to_json(reward.to_dict())
        measured: dict[str, Any] = {}
        public, truth = self.inputs.public, self.inputs.truth
        if public is not None:
            measured["public_evaluation"] = measure_public(reward, public, policy.temperature)
        if truth is not None:
            known = public if self.settings.hides_texts else self.inputs.data
            assert isinstance(known, Comparisons)  # noqa: S101 - for the type checker
            measured["truth"] = measure_truth(policy, known, truth)
        parts = {"noise": self.settings.noise, **self._chosen, **parts, **measured}
        # of records a time tells how many there were, and how long their texts
        started = None if self.settings.hides_texts else self.started
        return certified_files(certificate, ledger, parts, {REWARD: model}, started=started)


class BallotRun(LearningRun):
    """A run on rankings: ballots of an election, or ordered answers to prompts."""

    @property
    def ballots(self) -> Slates:
        """Return what is public of the ballots, raw or randomized."""
        assert isinstance(self.inputs.data, Slates)  # noqa: S101 - for the type checker
        return self.inputs.data

    @property
    def rankings(self) -> Rankings:
        """Return the ballots."""
        assert isinstance(self.inputs.data, Rankings)  # noqa: S101 - for the type checker
        return self.inputs.data

    def picture(self, rows: Matrix) -> Picture:
        """Refuse to foresee anything."""
        del rows
        raise UsageError("Of rankings nothing is foreseen. Nothing was done.")

    @property
    def ballot_features(self) -> HashedText | None:
        """Return the features of candidates with texts; None for items."""
        return None if self.ballots.items else self.text_features

    def counts(self) -> dict[str, Any]:
        """Return how many ballots there are, where one change leaves that as it is."""
        private = self.settings.relation == ADD_OR_REMOVE_ONE
        ballots = None if private else len(self.ballots)
        return {"pairs": None, "ballots": ballots, "dropped": None}

    def described(self, reward: RewardModel, policy: CandidatePolicy) -> dict[str, Any]:
        """Return the items, best first, how often the policy picks each, and what was used."""
        items = self.ballots.items
        capped = None
        if not self.settings.hides_texts:
            capped = int(np.sum(self.ballots.first_rows())) - (reward.pairs or 0)
        worths = choices = None
        if reward.items is not None and reward.features is None:
            rows = reward.item_features
            rows = np.eye(len(reward.items)) if rows is None else rows
            (chances,) = policy.probabilities(None, [rows])
            pairs = sorted(zip(reward.items, chances.tolist(), strict=True), key=lambda p: -p[1])
            choices = [{"name": name, "probability": chance} for name, chance in pairs]
        if reward.items is not None:  # with 95% intervals where these are known; last without data
            worths = [
                {"name": name, "worth": worth, "interval": None if low is None else [low, high]}
                for name, worth, low, high in reward.worths()
            ]
        known = {"items": None if items is None else len(items), "capped": capped}
        data = self.counts() | known
        return {"data": data, "policy": {"choices": choices}, "items": worths}


def parts_of(
    reward: RewardModel,
    policy: CandidatePolicy,
    told: dict[str, Any],
    *,
    about: Mapping[str, Any],
    metrics: Mapping[str, Any],
    wins: Mapping[str, Any] = NO_WINS,
) -> dict[str, Any]:
    """Return the fields of a result where nothing is free but what is told."""
    return {
        "data": {**about, **told.pop("data")},
        "reward": {**metrics, **describe_fit_settings(reward)},
        "policy": {
            **describe_policy(policy),
            "temperature": policy.temperature,
            "kl": None,
            **wins,
            "pessimism": None,
            **told.pop("policy", {}),
        },
        **dict.fromkeys(("utility", "decisive", "examples")),
        "calibration": [],
        **told,
    }


def certified_files(
    certificate: Certificate,
    ledger: Ledger,
    parts: Mapping[str, Any],
    files: Mapping[str, str],
    *,
    started: float | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a ``result.json`` and all files beside it, of which the first was certified.

    Without ``started`` the time that a run took is not told.
    """
    name, text = next(iter(files.items()))
    result: dict[str, Any] = finite(
        {
            "format": RESULT_FORMAT,
            "version": RESULT_VERSION,
            "sordino": __version__,
            "noise": parts["noise"],
            **describe_guarantee_and_caveats(certificate.guarantee),
            **parts,
            "certificate": certificate.to_dict(),
            f"{Path(name).stem}_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "seconds": None if started is None else round(_random.clock() - started, 3),
        }
    )
    return result, {**files, "report.html": page(result, ledger)}


def page(result: dict[str, Any], ledger: Ledger) -> str:
    """Return the report of a run as one HTML file."""
    shown = describe_ledger_rows(ledger)
    return render_report(
        summarize(result, calibration=result.get("calibration") or (), ledger=shown)
    )


def make_policy(
    reward: RewardModel, *, temperature: float, confidence: float | None, scale: float | None
) -> CandidatePolicy:
    """Return the Gibbs policy, or with a confidence the pessimistic one."""
    if confidence is None:
        return gibbs_policy(reward, temperature=temperature)
    return pessimistic_policy(
        reward,
        temperature=temperature,
        confidence=confidence,
        scale=1.0 if scale is None else scale,
    )


def remake_policy(
    reward: RewardModel, described: Mapping[str, Any], *, temperature: float | None
) -> CandidatePolicy:
    """Return the policy of an earlier run, at its own temperature unless another is given."""
    return make_policy(
        reward,
        temperature=described["temperature"] if temperature is None else temperature,
        confidence=described.get("confidence"),
        scale=described.get("scale"),
    )


def describe_policy(policy: CandidatePolicy) -> dict[str, Any]:
    """Return what :func:`make_policy` needs to make it again, and whether it is proved."""
    if not isinstance(policy, ConfidencePolicy):
        return {"kind": "gibbs", "confidence": None, "scale": None}
    return {"kind": policy.kind, "confidence": policy.confidence, "scale": policy.scale}


def show_examples(
    policy: CandidatePolicy, *, public: Pairs | None, released: PrivatePairs | None
) -> dict[str, Any] | None:
    """Return examples from texts that are public or were released before; None without such."""
    if public is not None:
        return measure_examples(policy, public.choices, source="public")
    if released is None:
        return None
    return measure_examples(policy, released.choices, source="released")
