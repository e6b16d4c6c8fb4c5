"""The mechanisms of a curator by the names that results and reports know: a new one is a line.

Commands, files of rewards and reports read from here what a name stands for. Auditors do not: they
compare what is described with the events on the ledger, each in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .base import Described
from .label_sum import LabelGaussian, SumMechanism
from .objective_perturbation import ObjectivePerturbation, RankingObjectivePerturbation
from .randomized_response import KaryRandomizedResponse
from .ranking_sum import BallotGaussian, RankingGaussian

_BALLOTS: Final = (RankingGaussian, RankingObjectivePerturbation)
CURATOR_MECHANISMS: Final[Mapping[str, type[Described]]] = MappingProxyType(
    {kind.name: kind for kind in (BallotGaussian, LabelGaussian, ObjectivePerturbation, *_BALLOTS)}
)


def is_noised_sum(name: object) -> bool:
    """Return whether a mechanism of this name releases one sum with noise."""
    return issubclass(CURATOR_MECHANISMS.get(str(name), object), SumMechanism)


def hides_ballots(name: object) -> bool:
    """Return whether a mechanism of this name is for rankings."""
    return name == KaryRandomizedResponse.name or issubclass(
        CURATOR_MECHANISMS.get(str(name), object), (BallotGaussian, *_BALLOTS)
    )
