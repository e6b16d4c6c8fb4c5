"""Contexts to choose in, as numbers: features of all candidates, and how often each comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import issparse
from scipy.special import xlogy

from sordino import _validate
from sordino.errors import DataError
from sordino.preferences.features import Features
from sordino.rewards.candidates import CandidateLists, Candidates, Prompts, ReferenceLists

from .frank_wolfe import Response
from .gibbs import tilt


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Contexts:
    """All m candidates of n contexts below each other, with where a policy starts from."""

    rows: Any  # features of all candidates, shape (m, d), dense or sparse
    sizes: Integer[np.ndarray, " n"]  # how many candidates each context has, ≥ 1
    # Probabilities of the starting policy, summing to 1 in every context.
    reference: Float[np.ndarray, " m"]
    weights: Float[np.ndarray, " n"]  # how often each context comes, summing to 1

    @classmethod
    def of(
        cls,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        weights: object = None,
        features: Features | None = None,
    ) -> Contexts:
        """Return checked contexts."""
        options = _options(prompts, candidates, reference, features)
        base = options.reference
        totals = np.repeat(np.add.reduceat(base, options.starts), options.sizes)
        rows, n = options.given, len(options.sizes)
        if features is not None:
            rows = features.transform(options.prompts, options.answers)
        shares = np.full(n, 1 / n)
        if weights is not None:
            given = _validate.finite_array("weights", weights, ndim=1)
            if len(given) != n:
                raise DataError(
                    f"weights must have one entry for each of {n} contexts, got {len(given)}."
                )
            if (given < 0).any() or not given.sum() > 0:
                raise DataError("weights must be at least 0, and not all 0.")
            shares = given / given.max() / (given / given.max()).sum()
        return cls(rows=rows, sizes=options.sizes, reference=base / totals, weights=shares)

    def __len__(self) -> int:
        """Return n, the number of contexts."""
        return len(self.sizes)

    @cached_property
    def starts(self) -> Integer[np.ndarray, " n"]:
        """Where each context's candidates begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def spread(self) -> Float[np.ndarray, " m"]:
        """The weight of every candidate's context."""
        return np.repeat(self.weights, self.sizes)

    def split(self, values: Float[np.ndarray, " m"]) -> list[Float[np.ndarray, " _"]]:
        """Return one array for each context."""
        return np.split(values, self.starts[1:])

    def best_response(self, theta: Float[np.ndarray, " d"]) -> Response:
        """Return the mean features of the greedy policy, and which candidates it chooses."""
        # Source: docs/planning.md, "Frank–Wolfe by best responses".
        scores = self.rows @ theta
        if bool(np.all(self.sizes == self.sizes[0])):
            best = scores.reshape(len(self), -1).argmax(axis=1)
            chosen = np.asarray(self.starts + best)
        else:  # the first of the best
            top = np.repeat(np.maximum.reduceat(scores, self.starts), self.sizes)
            places = np.where(scores == top, np.arange(len(scores)), len(scores))
            chosen = np.asarray(np.minimum.reduceat(places, self.starts))
        return np.asarray(self.weights @ self.rows[chosen]), chosen

    def start(self) -> Response:
        """Return the mean features of the reference policy, and its probabilities."""
        return self.moments(self.reference), self.reference

    def moments(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, " d"]:
        """Return the mean features of a policy."""
        return np.asarray((self.spread * chances) @ self.rows)

    def means(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, "n d"]:
        """Return a policy's mean features in every context."""
        weighted = _scaled(self.rows, chances)
        if issparse(weighted):
            from scipy.sparse import csr_array  # noqa: PLC0415 - dense rows need it not

            ends = np.append(self.starts, len(chances))
            sums = csr_array((np.ones(len(chances)), np.arange(len(chances)), ends))
            return np.asarray((sums @ weighted).toarray())
        return np.asarray(np.add.reduceat(weighted, self.starts, axis=0))

    def mixed(
        self, weights: Float[np.ndarray, " j"], policies: tuple[Any, ...]
    ) -> Float[np.ndarray, " m"]:
        """Return the probabilities of following each policy as often as the weights say."""
        total = np.zeros(len(self.reference))
        for weight, policy in zip(weights, policies, strict=True):
            if policy.dtype.kind == "f":
                total += weight * policy
            else:
                total[policy] += weight
        return np.asarray(total / np.repeat(np.add.reduceat(total, self.starts), self.sizes))

    def kl(self, chances: Float[np.ndarray, " m"]) -> float:
        """Return KL(policy ‖ reference), the mean over contexts, in nats."""
        return max(float(self.spread @ self.divergences(chances)), 0.0)

    def divergences(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return p log(p / reference) of every candidate: summed up, the KL of a context."""
        return np.asarray(xlogy(chances, chances) - xlogy(chances, self.reference))

    def soft(
        self, theta: Float[np.ndarray, " d"], temperature: float
    ) -> tuple[float, Float[np.ndarray, " m"]]:
        """Return the largest θᵀφ − temperature · KL on average, and the policy that has it."""
        # Source: docs/planning.md, "With a KL penalty": the Gibbs policy, and its log-sum-exp.
        scores = np.asarray(self.rows @ theta)
        top = np.maximum.reduceat(scores, self.starts)
        weights = self.reference * np.exp((scores - np.repeat(top, self.sizes)) / temperature)
        logs = np.log(np.add.reduceat(weights, self.starts))
        value = float(self.weights @ (top + temperature * logs))
        return value, tilt(scores, self.starts, temperature, self.reference)

    def covariance(self, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, "d d"]:
        """Return the mean over contexts of the covariance of the features under a policy."""
        # Source: docs/planning.md, "With a KL penalty".
        second = self.rows.T @ _scaled(self.rows, self.spread * chances)
        means = self.means(chances)
        second = second.toarray() if issparse(second) else second
        return np.asarray(second - means.T @ (self.weights[:, None] * means))


def _options(
    prompts: Prompts,
    candidates: CandidateLists,
    reference: ReferenceLists,
    features: Features | None,
) -> Candidates:
    """Return checked candidates; an array of shape (n, k, d) is read without a loop."""
    whole = isinstance(candidates, np.ndarray) and candidates.ndim == 3 and candidates.size  # noqa: PLR2004
    if prompts is None and features is None and whole:
        rows = _validate.finite_array("candidates", candidates, ndim=3)
        n, k, d = rows.shape
        base = np.full(n * k, 1 / k)
        if reference is not None:
            empty = np.zeros((n, k, 0))
            base = Candidates.of(None, empty, reference=reference, features=None).reference
        return Candidates(sizes=np.full(n, k), reference=base, given=rows.reshape(n * k, d))
    return Candidates.of(prompts, candidates, reference=reference, features=features)


def _scaled(rows: Any, factors: Float[np.ndarray, " m"]) -> Any:
    """Return every row times its factor, dense or sparse as it was."""
    return rows.multiply(factors[:, None]).tocsr() if issparse(rows) else factors[:, None] * rows
