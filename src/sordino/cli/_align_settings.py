"""What the user chose for one run, refused where it cannot be met before a file is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._files import refuse_existing
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.features import HashedText, usable_dimension, usual_features
from sordino.privacy.attempts import is_begun
from sordino.privacy.guarantee import NeighboringRelation
from sordino.rewards.answer_fit import METHODS

from ._accounts import Budget
from ._options import Neighbors, Place, Unit, refuse_records, refuse_relation
from ._policy_choice import refuse_settings

DELTA = 1e-6
_TEMPERATURE = 0.5
_BOUND = 1.0  # hashed answers to one prompt share words: nearly all differences are shorter
_USUAL_LENGTH = 0.6  # of a difference: a longer bound costs noise, and teaches less


class NoiseOn(StrEnum):
    """Where the noise is."""

    labels = "labels"
    estimate = "estimate"
    draws = "draws"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose for one run."""

    # Attributes are the options of `sordino align`; None where one was left out. `request` is the
    # name of the command, by which it finds what it paid for before it was interrupted.

    out: Path
    noise: NoiseOn
    epsilon: float | None
    delta: float | None
    unit: Unit
    neighbors: Neighbors | None
    cap: int | None
    bound: float | None
    second_moment: bool
    metrics_epsilon: float | None
    budget: Budget
    ledger: Path | None
    data: str
    asked_dimension: int | None
    asked_temperature: float | None
    draws: int | None
    ridge: float | None
    method: str
    ball: float
    confidence: float | None
    scale: float | None
    simulate_seed: int | None
    force: bool
    place: Place
    request: str | None = None
    all_offered: bool = False
    named_offered: bool = False

    def __post_init__(self) -> None:
        """Refuse unusable settings before a file is opened."""
        _validate.positive("--temperature", self.temperature)
        usable_dimension("--dimension", self.dimension)
        if self.ridge is not None:
            _validate.workable("--ridge", self.ridge)
        _validate.workable("--ball", self.ball)
        _validate.one_of("--method", self.method, METHODS)
        self._refuse_other_way()
        refuse_settings(
            confidence=self.confidence,
            scale=self.scale,
            method=self.method,
            dimension=self.dimension,
        )
        if self.all_offered and self.named_offered:
            raise UsageError(
                "--all-offered and --named-offered exclude each other. Nothing was done. Give one."
            )
        if not self._is_left():
            refuse_existing(self.out, force=self.force)

    @property
    def was_interrupted(self) -> bool:
        """Return whether this command paid for something before, and did not end."""
        return is_begun(self.ledger_path, self.request)

    def _is_left(self) -> bool:
        """Return whether the folder is what an interrupted run left: without a result."""
        if self.force or not self.out.is_dir() or os.path.lexists(self.out / "result.json"):
            return False
        own = self.ledger_path.stem
        names = (path.name for path in self.out.iterdir())
        return self.was_interrupted or all(name.startswith((".", own)) for name in names)

    def _refuse_other_way(self) -> None:
        """Refuse settings that belong to another way."""
        if self.noise is NoiseOn.draws:
            self._refuse_in_intrinsic_way()
            return
        draws = {"--draws": self.draws}
        refuse_given(draws, "only with --noise draws does each draw spend; here all are free")
        if self.noise is NoiseOn.labels:
            self._refuse_in_local_way()
        else:
            self._refuse_in_central_way()

    def _refuse_in_local_way(self) -> None:
        """Refuse what single randomized labels have no use for."""
        refuse_relation(self.neighbors or Neighbors.replace_one)
        refuse_records(self.unit)
        refuse_given(
            {
                "--delta": self.delta,
                "--bound": self.bound,
                "--second-moment": self.second_moment or None,
                "--metrics-epsilon": self.metrics_epsilon,
            },
            "--noise labels randomizes single labels, which needs none of it and measures for free",
        )
        if self.epsilon is not None:
            RandomizedResponse(self.epsilon)

    def _refuse_in_central_way(self) -> None:
        """Refuse what one noised release has no use for, or cannot keep."""
        _validate.telling("--epsilon", self.total)
        _validate.failure_probability("--delta", self.failure, zero=False)
        if self.metrics_epsilon is not None:
            _validate.telling("--metrics-epsilon", self.metrics_epsilon)
        if self.method != "auto":
            raise UsageError(
                f"--method {self.method} is for answers that were randomized one by one, which "
                "--noise estimate does not do. Nothing was done. Leave it out."
            )
        if self.unit is not Unit.person:
            refuse_given({"--cap": self.cap}, "A cap is for --unit person")
        if self.unit is Unit.record:
            _validate.positive("--bound", self.clip)
            return
        refuse_relation(self.neighbors or Neighbors.replace_one)
        refuse_given(
            {"--bound": self.bound, "--second-moment": self.second_moment or None},
            f"--unit {self.unit.value} protects labels; prompts and answers are public then, and "
            "their moments with them",
        )

    def _refuse_in_intrinsic_way(self) -> None:
        """Refuse what a withheld reward has no use for, or cannot keep."""
        if self.unit is Unit.person:
            raise UsageError(
                "--unit person: a withheld reward bounds what one label or one record shows. "
                "Nothing was done. Use --unit label or record, or --noise estimate for persons."
            )
        _validate.telling("--epsilon", self.total)
        _validate.failure_probability("--delta", self.failure)
        _validate.integer("--draws", self.count, at_least=1)
        given = {
            "--method": None if self.method == "auto" else self.method,
            "--confidence": self.confidence,
            "--scale": self.scale,
            "--cap": self.cap,
            "--second-moment": self.second_moment or None,
            "--metrics-epsilon": self.metrics_epsilon,
            "--simulate-seed": self.simulate_seed,
        }
        refuse_given(given, "--noise draws prepares draws and releases nothing by itself")
        if self.unit is Unit.label:
            refuse_relation(self.neighbors or Neighbors.replace_one)
            refuse_given(
                {"--bound": self.bound}, "it is for --unit record; labels are hidden alone"
            )

    @property
    def dimension(self) -> int:
        """Return the number of text features; chosen here if it was left out."""
        return 512 if self.asked_dimension is None else self.asked_dimension

    def features(self, n: int | None) -> HashedText:
        """Return the features of a curator's reward."""
        if self.asked_dimension is None:
            return usual_features(n)
        return HashedText(dimension=self.asked_dimension)

    @property
    def temperature(self) -> float:
        """Return the temperature of the policy; chosen here if it was left out."""
        return _TEMPERATURE if self.asked_temperature is None else self.asked_temperature

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
    def clip(self) -> float:
        """Return the norm to which feature differences of records are clipped."""
        if self.bound is not None:
            return self.bound
        # a confidence set is about whole differences, of which the bound may cut next to none
        shortens = self.noise is NoiseOn.estimate and self.confidence is None
        return _USUAL_LENGTH if shortens else _BOUND

    @property
    def relation(self) -> NeighboringRelation:
        """Return what one change is: labels are replaced, records made empty if nothing is said."""
        usual = Neighbors.zero_out if self.unit is Unit.record else Neighbors.replace_one
        return (self.neighbors or usual).relation

    @property
    def other_seed(self) -> int | None:
        """Return a seed for a second mechanism, if there is one for the first."""
        return None if self.simulate_seed is None else self.simulate_seed + 1

    @property
    def hides_texts(self) -> bool:
        """Return whether prompts and answers are private, and not only what people said of them."""
        return self.unit is Unit.record

    @property
    def offered(self) -> str | None:
        """Return what ballots were offered that do not say it."""
        # Where what a ballot names is a part of what is hidden, each must say it, or an option: to
        # refuse the short ones only would tell that there are some.
        if self.all_offered or self.named_offered:
            return "all" if self.all_offered else "named"
        return "each" if self.hides_texts else None

    @property
    def policy_terms(self) -> dict[str, Any]:
        """Return what a policy is made with."""
        return {
            "temperature": self.temperature,
            "confidence": self.confidence,
            "scale": self.scale,
        }

    @property
    def fitted_by(self) -> str:
        """Return the method of the fit: confidence sets are about the debiased estimate."""
        return self.method if self.confidence is None else "debiased"

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or self.out / "spend.db"


def refuse_given(options: Mapping[str, Any], why: str) -> None:
    """Refuse options that have no meaning here."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{' and '.join(given)}: {why}. Nothing was done. Leave it out.")
