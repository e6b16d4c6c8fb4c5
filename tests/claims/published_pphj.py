"""What PPHJ states, as printed. Most of its noise is refuted: never use it.

PPHJ: "AI Alignment with Provable Protection of Human Judgements". Its L is the
``feature_bound``: one feature vector, so that a record has norm at most 2L.
"""

import math


def published_tilt(epsilon, delta, feature_bound):
    """Algorithm 1, step 1: the standard deviation of b, said to give (ε/2, δ/2)."""
    return math.sqrt(40 * math.log(1 / delta)) * feature_bound / epsilon


def published_output_noise(epsilon, delta, accuracy, curvature):
    """Algorithm 1, step 2: the standard deviation ν of w; ``curvature`` is its α."""
    return math.sqrt(40 * accuracy * math.log(1 / delta) / curvature) / epsilon


def published_second_moment(epsilon, delta, feature_bound, candidates=None):
    """Algorithm 2 and Lemma B.5, for the sum: n times the printed standard deviation."""
    wise = 1 if candidates is None else candidates**3
    return 8 * math.sqrt(math.log(1 / delta)) * wise * feature_bound**2 / epsilon


def published_k_wise(candidates, feature_bound):
    """Appendix B: bounds on moment, gradient, and curvature, and on the rank of the curvature."""
    return (
        4 * candidates**3 * feature_bound**2,
        2 * candidates**2 * feature_bound,
        4 * candidates**3 * feature_bound**2,
        candidates**3,
    )
