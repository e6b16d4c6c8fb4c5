"""What PPO-DP states, as printed on its slides and in arXiv 2510.21060. Partly refuted.

``reward_bound`` is R_max (rewards within ±R_max), ``score_bound`` is G.
"""

import math


def published_gradient_noise(epsilon, delta, reward_bound, score_bound, users):
    """Theorem 1: the standard deviation that DP-PG adds to a mean over one batch."""
    return 4 * math.sqrt(math.log(1.25 / delta)) * reward_bound * score_bound / (users * epsilon)


def published_score_bound(answers):
    """G of a tabular softmax: G² = 1 − 1/|Y|."""
    return math.sqrt(1 - 1 / answers)


def published_selection_weights(losses, epsilon, reward_bound):
    """Algorithm 5: log-weights of the exponential mechanism over a finite class."""
    return -epsilon / (8 * reward_bound**2) * losses
