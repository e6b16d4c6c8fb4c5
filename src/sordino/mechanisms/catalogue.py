"""The mechanisms of a curator by the names that results and reports know: a new one is a line.

Commands, files of rewards and reports read from here what a name stands for. Auditors do not: they
compare what is described with the events on the ledger, each in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .base import Described
from .label_sum import LabelGaussian
from .objective_perturbation import ObjectivePerturbation, RankingObjectivePerturbation
from .ranking_sum import BallotGaussian, RankingGaussian

BALLOTS: Final = (BallotGaussian, RankingGaussian, RankingObjectivePerturbation)
CURATOR_MECHANISMS: Final[Mapping[str, type[Described]]] = MappingProxyType(
    {kind.name: kind for kind in (LabelGaussian, ObjectivePerturbation, *BALLOTS)}
)
