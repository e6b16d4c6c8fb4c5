"""What the user chose for one run of ``align``, refused where it cannot be met; what it reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunks
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import (
    INTERCEPTS,
    Features,
    HashedText,
    suited_features,
    usable_dimension,
    usual_features,
)
from sordino.preferences.files import kind_of
from sordino.preferences.rankings import PrivateChoices, Rankings, read_rankings
from sordino.preferences.schemas import TRAJECTORIES
from sordino.preferences.trajectories import Trajectories, read_trajectories
from sordino.privacy.guarantee import NeighboringRelation
from sordino.rewards.evidence import MOST_FEATURES
from sordino.rewards.finite import FiniteRewards
from sordino.rewards.reward_fit import BALL, METHODS

from .progress import Bar
from .settings import (
    DELTA,
    Argument,
    Cap,
    DataOption,
    FitOption,
    IntoFolder,
    ManyFiles,
    Neighbors,
    PrivacyOption,
    Rated,
    Unit,
    named_option,
    refuse_foreign,
    refuse_given,
    refuse_options,
    refuse_records,
    refuse_relation,
)

_TEMPERATURE = 0.5
_BOUND = 1.0  # hashed answers to one prompt share words: nearly all differences are shorter
_USUAL_LENGTH = 0.6  # of a difference: a longer bound costs noise, and teaches less
_MEASURES: Mapping[str, Any] = {
    "noise": ("labels", "estimate"),
    "why": "it measures a reward, and with --noise draws that is withheld",
}
_FOREIGN = {
    "labels": "--noise labels randomizes single labels, which needs none of it and measures for "
    "free",
    "estimate": "--noise estimate releases one noised estimate, which has no use for it",
    "draws": "--noise draws prepares draws and releases nothing by itself",
}


Epsilon = Annotated[
    float | None, PrivacyOption("Privacy loss allowed, per --unit; needed for raw judgments.")
]
Delta = Annotated[
    float | None,
    PrivacyOption(
        "Failure probability allowed with --noise estimate, below 1 in the number of records. "
        "1e-6 by default.",
        noise=("estimate", "draws"),
    ),
]
WhichUnit = Annotated[
    Unit,
    PrivacyOption(
        "What --epsilon is about: one label, all labels of one person together (needs person "
        "ids), or one whole record, prompt and answers included (central only)."
    ),
]
Relation = Annotated[
    Neighbors | None,
    PrivacyOption(
        "What one change is. Labels are replaced; records are made empty (zero-out) unless "
        "you say otherwise. Under add-remove their number is private too."
    ),
]


ClassFile = Annotated[
    Path | None,
    FitOption(
        "Choose among the rewards of this public file, written down before anybody answered: rows "
        "of prompt, completion and a score in [0, 1] by each candidate; or of name and weights.",
        flag="--class",
        metavar="FILE",
    ),
]


class Promised:
    """What the user said that a run is to promise, with what is chosen where nothing was said."""

    epsilon: float | None
    delta: float | None
    unit: Unit
    neighbors: Neighbors | None

    @property
    def total(self) -> float:
        """Return what may be spent on one unit."""
        if self.epsilon is None:
            raise UsageError(
                "These are raw judgments, so --epsilon is needed: the privacy loss allowed per "
                f"{self.unit.value} (1 is strong, 4 is weak). Nothing was done."
            )
        return self.epsilon

    @property
    def failure(self) -> float:
        """Return the failure probability of a curator; chosen here if it was left out."""
        return DELTA if self.delta is None else self.delta

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is: labels are replaced, records made empty if nothing is said."""
        usual = Neighbors.zero_out if self.hides_texts else Neighbors.replace_one
        return (self.neighbors or usual).relation

    @property
    def hides_texts(self) -> bool:
        """Return whether prompts and answers are private, and not only what people said of them."""
        return self.unit is Unit.record


@dataclass(frozen=True, kw_only=True)
class Offered(Promised, Rated):
    """How judgments are read that may be ballots, and what these were offered."""

    all_offered: bool = DataOption(
        "Of ballots without a field 'offered': everybody could list every item. Items that a "
        "ballot leaves out tie below the others, and which they are stays private.",
        False,
    )
    named_offered: bool = DataOption(
        "Of ballots without a field 'offered': each was offered just the items it names, "
        "which makes public what it names (not the order). With neither option ballots must "
        "name every item, and that they do is public.",
        False,
    )

    @property
    def offered(self) -> str | None:
        """Return what ballots were offered that do not say it."""
        # Where what a ballot names is a part of what is hidden, each must say it, or an option: to
        # refuse the short ones only would tell that there are some.
        if self.all_offered and self.named_offered:
            raise UsageError(
                "--all-offered and --named-offered exclude each other. Nothing was done. Give one."
            )
        if self.all_offered or self.named_offered:
            return "all" if self.all_offered else "named"
        return "each" if self.hides_texts else None

    def read_ballots(self, source: object, **known: Any) -> Rankings | PrivateChoices:
        """Return the ballots of a file, or of whatever else holds them."""
        with Bar.shown("Reading") as bar:
            return read_rankings(
                source,
                columns=self.reading["columns"],
                person_field=self.reading["person_field"],
                offered=self.offered,
                hides_records=self.hides_texts,
                progress=bar,
                **known,
            )


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """How a reward is fitted on randomized answers, and on whatever else teaches one."""

    ball: float = FitOption(
        "Bound on the norm of the weights. A confidence set takes it as a promise about the "
        "truth: choose it before you look.",
        BALL,
    )
    method: str = FitOption(
        "Likelihood of the fit; auto refines by the mixture where that clearly pays.",
        "auto",
        noise=("labels",),
        why="it is for answers that were randomized one by one, which only --noise labels does",
        metavar="|".join(METHODS),
    )
    ridge: float | None = FitOption("Penalty of the fit; by default chosen on held-out answers.")

    intercept: str | None = FitOption(
        "Of thumbs and ratings: one intercept, the bar that an answer must pass to be liked; "
        "none; or one for each value of the public field 'family'. One by default; with --unit "
        "record it must be said.",
        choices=INTERCEPTS,
    )

    def suited(
        self, features: HashedText, data: Comparisons | Chunks, survey: ChunkSurvey | None = None
    ) -> Features:
        """Return features with the intercept that single answers are held against."""
        # Which families there are, files in chunks say when they are surveyed.
        if self.intercept == "family" and getattr(self, "hides_texts", False):
            raise UsageError(
                "--intercept family makes a weight for each family of prompts, and --unit record "
                "hides which there are. Nothing was done. Use --intercept one."
            )
        families = getattr(survey or data, "families", ())
        alone = self.judges_alone(data)
        found = suited_features(features, alone=alone, intercept=self.intercept, families=families)
        assert found is not None  # noqa: S101 - for the type checker
        return found

    def judges_alone(self, data: Comparisons | Chunks) -> bool:
        """Return whether single answers were judged; where records are hidden, if that was said."""
        # There may be none to tell it, and how many weights a reward has is released.
        if not getattr(self, "hides_texts", False):
            return data.alone
        said = self.intercept is not None
        if data.alone and not said:
            raise UsageError(
                "These are judgments of single answers. With --unit record no record may tell "
                "that, so it has to be said: --intercept one, or none. Nothing was done."
            )
        return said and (data.alone or isinstance(data, Chunks) or not len(data))

    def refuse_unworkable(self) -> None:
        """Refuse settings that no fit can work with."""
        _validate.workable("--ball", self.ball)
        _validate.one_of("--method", self.method, METHODS)
        if self.ridge is not None:
            _validate.workable("--ridge", self.ridge)


@dataclass(frozen=True, kw_only=True)
class _Stepped(Promised):
    """How trajectories are read; where nothing is said, the first record tells that they are."""

    horizon: int | None = DataOption(
        "Of trajectories: the number of steps of each. With --unit record it must be said.", min=1
    )
    step_features: Path | None = DataOption(
        "Of trajectories that name states and actions: a public table of features, JSON or .npy, "
        "by state and action, or by step, state and action.",
        metavar="TABLE",
    )
    step_bound: float | None = PrivacyOption(
        "Of trajectories: the norm to which the features of each step are shortened, so that no "
        "difference of sums is longer than 2 x steps x this. --unit record needs it, or --bound."
    )

    def holds_trajectories(self, source: object) -> bool:
        """Return whether trajectories are compared; of hidden records, whether that is said."""
        said = (self.horizon, self.step_features, self.step_bound) != (None, None, None)
        files = isinstance(source, Path | list)
        if said or not files or kind_of(source) != TRAJECTORIES:
            return said
        if self.hides_texts:  # how many weights there are is released
            raise UsageError(
                "These are trajectories. With --unit record no record may tell that, nor how long "
                "they are, so it has to be said: --horizon, --step-bound, and --dimension or "
                "--step-features. Nothing was done."
            )
        return True

    def read_trajectories(self, source: object, **reading: Any) -> Trajectories:
        """Return the trajectories of a file, or of whatever else holds them."""
        with Bar.shown("Reading") as bar:
            return read_trajectories(
                cast("Any", source),
                features=self.step_features,
                feature_bound=self.step_bound,
                horizon=self.horizon,
                progress=bar,
                **reading,
            )


@dataclass(frozen=True, kw_only=True)
class Align(Offered, _Stepped, IntoFolder, Fitting, ManyFiles):
    """What the user chose for one run; None where an option was left out."""

    title = "sordino align"

    prefs: list[Path] = Argument(
        "Judgments (.jsonl, .csv or .tsv, also .gz); privatized ones as .jsonl. Or many "
        "files: .parquet, .jsonl, or folders of them.",
        metavar="DATA...",
    )
    noise: str = PrivacyOption(
        "Where the noise is: on every single label; on one estimate that a curator makes of "
        "raw judgments; or nowhere but in the draws of choose. auto takes the kind that is "
        "foreseen to predict best, from what is public.",
        "labels",
        choices=("auto", *_FOREIGN),
    )
    epsilon: Epsilon = None
    delta: Delta = None
    unit: WhichUnit = Unit.label
    cap: Cap = None
    neighbors: Relation = None
    bound: float | None = PrivacyOption(
        "Norm to which the features of every record are shortened, with --unit record. By "
        "default 0.6 with --noise estimate, and 1 for a confidence set or --noise draws.",
        noise=("estimate", "draws"),
    )
    second_moment: bool = PrivacyOption(
        "With --unit record: also release the noised second moment of the records, which "
        "others can plan with. --confidence needs it and brings it along.",
        False,
        noise=("estimate",),
    )
    metrics_epsilon: float | None = PrivacyOption(
        "With --noise estimate: hold out one question in five, and spend this much more on "
        "measuring the result on them. Without it, what is not free is not told.",
        noise=("estimate",),
        metavar="EPSILON",
    )
    draws: int | None = PrivacyOption(
        "With --noise draws: how many answers choose may draw for --epsilon together.",
        noise=("draws",),
        why="only with --noise draws does each draw spend; here all are free",
    )
    dimension: int | None = FitOption(
        "Number of hashed text features. By default 512; for --noise estimate 28, without "
        "words, unless 20,000 judgments or more can teach words."
    )
    temperature: float | None = FitOption(
        "KL strength of the policy, in units of reward. 0.5 by default; with --noise draws "
        "and --ridge, the least that --epsilon allows."
    )
    confidence: float | None = FitOption(
        "Make the policy pessimistic: trust the reward as far as a confidence set of this "
        "level allows. Without it, the reward is taken at its word.",
        noise=("labels", "estimate"),
    )
    scale: float | None = FitOption(
        "Share of the proved bonus that is used; below 1 it is a heuristic.",
        noise=("labels", "estimate"),
    )
    candidates: ClassFile = None
    evaluate: Path | None = DataOption(
        "Judgments that you declare public.", **_MEASURES, metavar="PUBLIC"
    )
    truth: Path | None = DataOption("True reward of simulated judgments.", **_MEASURES)

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened; auto takes any kind that is met."""
        if self.noise != "auto":
            self._refuse_unmet()
        elif all(isinstance(each, UsageError) for each in self.kinds.values()):
            raise cast("UsageError", self.kinds["labels"])

    @cached_property
    def reward_class(self) -> FiniteRewards | None:
        """Return the candidates among which is chosen; None for all linear rewards."""
        if self.candidates is None:
            return None
        with named_option("--class"):
            return FiniteRewards.read(self.candidates)

    def _refuse_unsuited_to_class(self) -> None:
        if self.noise != "labels":
            raise UsageError(
                "--class chooses the reward under which randomized answers are likeliest; --noise "
                f"{self.noise} has no way to do so. Nothing was done. Use --noise labels."
            )
        why = "--class FILE says which rewards there are, and one of them is taken as it is"
        refuse_options(self, why, "ridge", "dimension", "intercept")
        refuse_given({"--ball": self.ball != BALL, "--method": self.method != METHODS[0]}, why)

    def _refuse_unmet(self) -> None:
        if self.candidates is not None:
            self._refuse_unsuited_to_class()
        _validate.positive("--temperature", self.policy_temperature)
        usable_dimension("--dimension", self.text_dimension)
        self.refuse_unworkable()
        refuse_foreign(self, self.noise, _FOREIGN[self.noise])
        if self.noise == "estimate":
            _validate.telling("--epsilon", self.total)
            _validate.failure_probability("--delta", self.failure, zero=False)
            if self.metrics_epsilon is not None:
                _validate.telling("--metrics-epsilon", self.metrics_epsilon)
            if self.unit is not Unit.person:
                refuse_options(self, "A cap is for --unit person", "cap")
            if self.unit is Unit.record:
                _validate.positive("--bound", self.clip)
            else:
                refuse_relation(self.neighbors)
                why = (
                    f"--unit {self.unit} protects labels; prompts and answers are public then, and "
                    "their moments with them"
                )
                refuse_options(self, why, "bound", "second_moment")
        elif self.noise == "draws":
            if self.unit is Unit.person:
                raise UsageError(
                    "--unit person: a withheld reward bounds what one label or one record shows. "
                    "Nothing was done. Use --unit label or record, or --noise estimate for persons."
                )
            _validate.telling("--epsilon", self.total)
            _validate.failure_probability("--delta", self.failure)
            _validate.integer("--draws", self.count, at_least=1)
            refuse_options(self, _FOREIGN["draws"], "simulate_seed")
            if self.unit is Unit.label:
                refuse_relation(self.neighbors)
                refuse_options(self, "it is for --unit record; labels are hidden alone", "bound")
        else:
            refuse_relation(self.neighbors)
            refuse_records(self.unit)
            if self.epsilon is not None:
                RandomizedResponse(self.epsilon)
        self.refuse_matrices(self.text_dimension)
        _ = self.offered
        self.refuse_folder()

    @cached_property
    def kinds(self) -> dict[str, Align | UsageError]:
        """Return these settings with each kind of noise, or why they cannot be met with it."""
        found: dict[str, Align | UsageError] = {}
        for kind in _FOREIGN:
            try:
                draws = self.draws if kind == "draws" else None  # of no other kind
                same = kind == self.noise
                found[kind] = self if same else replace(self, noise=kind, draws=draws)
            except UsageError as error:
                found[kind] = error
        return found

    def refuse_matrices(self, dimension: int) -> None:
        """Refuse settings of a policy that no reward could meet, before anything is spent."""
        if self.scale is not None and math.isinf(_validate.non_negative("--scale", self.scale)):
            raise UsageError("--scale must be finite, got inf. Nothing was done.")
        square = "--method mixture" if self.confidence is None else "--confidence"
        wanted = self.confidence is not None or self.method == "mixture"
        if wanted and dimension > MOST_FEATURES:
            raise UsageError(
                f"{square} needs a matrix of features by features: --dimension may be at most "
                f"{MOST_FEATURES}, got {dimension}. Nothing was done."
            )
        if self.confidence is None:
            if self.scale is not None:
                raise UsageError(
                    "--scale is for the bonus of a pessimistic policy: give --confidence too, or "
                    "leave it out. Nothing was done."
                )
            return
        _validate.failure_probability("--confidence", self.confidence, zero=False)
        if self.method == "mixture":
            raise UsageError(
                "--confidence needs the debiased estimate, which its set is proved for: leave "
                "--method mixture out. Nothing was done."
            )

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public files by which trajectories are read, and rewards are known."""
        return self.step_features, self.candidates

    @property
    def text_dimension(self) -> int:
        """Return the number of text features; chosen here if it was left out."""
        return 512 if self.dimension is None else self.dimension

    def features(self, n: int | None) -> HashedText:
        """Return the features of a curator's reward."""
        return usual_features(n) if self.dimension is None else HashedText(dimension=self.dimension)

    @property
    def policy_temperature(self) -> float:
        """Return the temperature of the policy; chosen here if it was left out."""
        return _TEMPERATURE if self.temperature is None else self.temperature

    @property
    def count(self) -> int:
        """Return how many draws with noise on draws epsilon is for."""
        if self.draws is None:
            raise UsageError(
                "--draws is needed with --noise draws: for how many draws together --epsilon is "
                "meant. Nothing was done."
            )
        return self.draws

    @property
    def clip(self) -> float:
        """Return the norm to which feature differences of records are clipped."""
        if self.bound is not None:
            return self.bound
        # a confidence set is about whole differences, of which the bound may cut next to none
        shortens = self.noise == "estimate" and self.confidence is None
        return _USUAL_LENGTH if shortens else _BOUND

    @property
    def metric_terms(self) -> dict[str, Any]:
        """Return what metrics are bought with: the seed, if there is one, is not the estimate's."""
        seed = None if self.simulate_seed is None else self.simulate_seed + 1
        return {"temperature": self.policy_temperature, "simulate_seed": seed}

    @property
    def policy_terms(self) -> dict[str, Any]:
        """Return what a policy is made with."""
        terms = {"confidence": self.confidence, "scale": self.scale}
        return {"temperature": self.policy_temperature, **terms}
