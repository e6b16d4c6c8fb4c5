"""A simulator of dose finding: the running example. Every number in it is invented.

It imitates the shape of a common problem (more helps less and less, harm grows faster than the
dose, and both differ between patients); no drug, trial or patient is behind it, and nothing that
it teaches may be used to treat anybody.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError

from .linear_worlds import LinearRewardWorld

__all__ = ["Dosing"]

_BENEFIT, _OF_SEVERITY = 0.8, 1.6  # of the largest dose: for everybody, and by severity
_OF_SLOWNESS, _OF_AGE, _OVERDOSE = 1.2, 0.4, 0.8  # its harm: by what hinders, and by excess
_PROGNOSES = 3  # severity, slowness, age
_SCALE = 5**0.5  # the largest norm before scaling: five features, none beyond ±1


@dataclass(frozen=True, eq=False)
class Dosing(LinearRewardWorld):
    """Patients whose best dose depends on how ill they are and on how slowly the drug leaves them.

    A patient is three public prognostic numbers, independent and uniform on [0, 1]: severity,
    slowness of elimination, age. An action is a dose x, evenly spaced from none (0) to the largest
    (1). The mean reward is benefit less harm, compared with that of half the largest dose:

        benefit = (.8 + 1.6 · severity) · x
        harm = (1.2 · slowness + .4 · age) · x + .8 · x²

    It is within [−1, 1]; what is felt has noise on it and is cut to that range. The prognosis is
    public; what a patient felt is private. With v = 2x − 1 and prognoses s, l, a moved to [−1, 1],
    the mean is linear in the five features (v, sv, lv, av, v²)/√5, so that a log-linear policy can
    come as near to the best one as its weights may grow. All parameters are invented.

    Source:
        docs/policy_optimization.md, "Environments".

    Attributes:
        reward_noise: Standard deviation of the noise, ≥ 0, in units of reward.
        levels: How many doses there are, ≥ 2; the first is none.

    Raises:
        UsageError: A number is out of range.

    Example:
        >>> world = Dosing()
        >>> patients = np.array([[0.0, 0.9, 0.9], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0]])
        >>> world.doses[world.mean_rewards(world.features(patients)).argmax(axis=1)].tolist()
        [0.0, 0.5, 1.0]
    """

    reward_noise: float = 0.3
    _: KW_ONLY
    levels: int = 5

    def __post_init__(self) -> None:
        """Refuse what is no world."""
        super().__post_init__()
        _validate.integer("levels", self.levels, at_least=2)
        linear = _BENEFIT + (_OF_SEVERITY - _OF_SLOWNESS - _OF_AGE) / 2 - _OVERDOSE
        parts = [linear, _OF_SEVERITY / 2, -_OF_SLOWNESS / 2, -_OF_AGE / 2, -_OVERDOSE / 2]
        self._keep(weights=_SCALE * np.array(parts) / 2)

    @property
    def doses(self) -> Float[np.ndarray, " k"]:
        """Return the doses, as shares of the largest."""
        return np.linspace(0.0, 1.0, self.levels)

    def patients(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n 3"]:
        """Return severity, slowness of elimination and age of n patients, each in [0, 1).

        Args:
            rng: Randomness of the world.
            n: Number of patients, ≥ 1.
        """
        return rng.random((_validate.integer("n", n, at_least=1), _PROGNOSES))

    def features(self, patients: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n k 5"]:
        """Return the features of all doses for given patients, of norm at most 1.

        Args:
            patients: As :meth:`patients` returns them; numbers outside [0, 1] are cut.

        Raises:
            DataError: There are not three finite numbers for each patient.
        """
        found = _validate.finite_array("patients", patients, ndim=2)
        if found.shape[1] != _PROGNOSES:
            raise DataError(f"patients must have shape (n, {_PROGNOSES}), got {found.shape}.")
        severity, slowness, age = (2 * np.clip(found, 0.0, 1.0) - 1).T[:, :, None]
        turned = 2 * self.doses - 1
        columns = [turned, severity * turned, slowness * turned, age * turned, turned**2]
        shape = (len(found), self.levels)
        return np.stack([np.broadcast_to(part, shape) for part in columns], axis=2) / _SCALE

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k 5"]:
        """Return the features of all doses of n patients.

        Args:
            rng: Randomness of the world.
            n: Number of patients, ≥ 1.
        """
        return self.features(self.patients(rng, n))
