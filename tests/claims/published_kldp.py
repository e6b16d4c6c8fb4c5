"""What KLDP states, formula by formula, as printed. Most of it is refuted: never use it.

KLDP: "KL-regularization Itself is Differentially Private in Bandits and RLHF". Its η is the
``temperature``, its β0 the ``penalty``, its R the ``reward_range``, λ_min(D) the
``least_eigenvalue`` of ridge · I + Σ xxᵀ. Each function returns ε, or (ε, δ).
"""

import math


def published_sigmoid(z):
    """Section 3 (notation): "σ(·) = 1/(1 + exp(·))"."""
    return 1 / (1 + math.exp(z))


def published_bradley_terry(first, second):
    """Section 3.2: σ(exp(r1) − exp(r2)), with the usual σ."""
    return 1 / (1 + math.exp(math.exp(second) - math.exp(first)))


def published_swap_from_add_remove(epsilon, delta):
    """Proposition 1, first half."""
    return 2 * epsilon, (1 + math.exp(epsilon)) * delta


def published_add_remove_from_swap(epsilon, delta):
    """Proposition 1, second half."""
    return epsilon, math.exp(epsilon) * delta


def published_lemma_1(sensitivity, temperature):
    """Lemma 1, pure."""
    return 2 * sensitivity / temperature


def published_lemma_1_approximate(sensitivity, temperature, outside):
    """Lemma 1, approximate: ``outside`` is what the policy of D puts on the other actions."""
    epsilon = published_lemma_1(sensitivity, temperature)
    return epsilon, outside * math.exp(epsilon)


def published_theorem_1(counts, *, temperature, reward_range, penalty):
    """Theorem 1, pure: equation (9)."""
    least = min(counts) - 1
    return (4 * reward_range / least + penalty / least**1.5) / temperature


def published_theorem_1_approximate(counts, threshold, *, temperature, reward_range, penalty):
    """Theorem 1, approximate, at a threshold N0."""
    epsilon = (4 * reward_range / threshold + penalty / threshold**1.5) / temperature
    gap = 1 / math.sqrt(max(counts)) - 1 / math.sqrt(threshold) + threshold**-1.5
    exponent = 4 * reward_range / (temperature * threshold) + penalty / temperature * gap
    return epsilon, len(counts) * math.exp(exponent)


def published_corollary_1(counts, share, *, temperature, reward_range, penalty):
    """Corollary 1, at N0 = max N / share: its δ lacks a 1/η that Theorem 1 has."""
    most = max(counts)
    grown = share**1.5 * penalty
    epsilon = (4 * share * reward_range + grown / math.sqrt(most)) / (temperature * most)
    exponent = 4 * share * reward_range / most + grown / temperature / most**1.5
    exponent -= penalty / temperature * (math.sqrt(share) - 1) / math.sqrt(most)
    return epsilon, len(counts) * math.exp(exponent)


def published_theorem_2(
    least_eigenvalue, n, d, *, temperature, reward_range, penalty, threshold=None
):
    """Theorem 2 of the main text; pure, or its ε at a threshold λ0."""
    less = least_eigenvalue - 1
    bracket = 2 * (1 + math.sqrt(n * d / less)) * reward_range / math.sqrt(less) + penalty / less
    return bracket / (temperature * math.sqrt(threshold or least_eigenvalue))


def published_theorem_2_appendix(
    least_eigenvalue, n, d, *, temperature, reward_range, penalty, threshold=None
):
    """The last formula of Appendix C: Lemma 1's factor 2 was lost."""
    less = least_eigenvalue - 1
    bracket = (1 + math.sqrt(n * d / less)) * reward_range / math.sqrt(least_eigenvalue)
    bracket += penalty / (2 * less)
    return bracket / (temperature * math.sqrt(threshold or least_eigenvalue))


def published_delta(epsilon, actions, shortest, threshold, *, temperature, penalty):
    """The δ of Theorems 2, 3 and 4: ``shortest`` is the least ‖φ(x, a)‖ in the inverse Σ."""
    gap = shortest - 1 / math.sqrt(threshold)
    return actions * math.exp(epsilon + penalty / temperature * gap)


def published_corollary_2(n, d, coverage, *, temperature, reward_range, penalty):
    """Corollary 2, pure, where λ_min ≥ 1 + n/(coverage · d)."""
    bracket = 2 * reward_range * (1 + math.sqrt(coverage) * d)
    bracket += penalty * math.sqrt(coverage * d / n)
    return coverage * d / (n * temperature) * bracket


def published_corollary_delta(epsilon, actions, n, d, coverage, share, *, temperature, penalty):
    """The δ of Corollaries 2 and 3, where ε is ``share`` times the pure one."""
    slope = penalty / temperature * math.sqrt(d / n)
    return actions * math.exp(epsilon + slope * (1 - math.sqrt(share * coverage)))


def published_theorem_3(least_eigenvalue, ridge, ball, *, temperature, threshold=None):
    """Theorem 3 (and the labels of Theorem 4); pure, or its ε at a threshold λ0."""
    pure = (2 + 2 * math.exp(2 * ball)) / (temperature * (least_eigenvalue - ridge))
    return pure * math.sqrt(least_eigenvalue / (threshold or least_eigenvalue))


def published_corollary_3(n, d, coverage, ball, *, temperature):
    """Corollary 3, pure, where λ_min ≥ ridge + n/(coverage · d)."""
    return (2 + 2 * math.exp(2 * ball)) * coverage * d / (n * temperature)


def published_theorem_4(least_eigenvalue, ridge, ball, *, temperature, penalty):
    """Theorem 4, pure, when a whole record comes or goes."""
    root = math.sqrt(least_eigenvalue)
    bracket = (1 + math.exp(2 * ball)) * root / (least_eigenvalue - ridge)
    return (bracket + 2 * penalty / (least_eigenvalue - 1)) / (temperature * root)


def published_repeated_draws(epsilon, draws, slack):
    """Section 4.4, repeated sampling: the ε of advanced composition."""
    return math.sqrt(2 * draws * math.log(1 / slack)) * epsilon + draws * epsilon * math.expm1(
        epsilon
    )


def published_inexact(epsilon, delta, distance):
    """Section 4.4, inexact optimization: ``distance`` bounds D_∞ both ways."""
    return epsilon + 2 * distance, delta
