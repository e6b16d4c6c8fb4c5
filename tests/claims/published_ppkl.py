"""What the system of PPKL does, in a few lines each. Do not use it.

PPKL: "Offline and Online KL-Regularized RLHF under Differential Privacy".
"""

import numpy as np


def published_targets(pairs):
    """Return what its reference is fine-tuned on: the answers that people chose."""
    return [(pair["prompt"], pair["chosen"]) for pair in pairs]


def published_dropout_bonus(features, weights, rate, *, passes=50, seed=0):
    """Return the spread of a linear head over passes with dropout, as its code has it."""
    generator = np.random.default_rng(seed)
    kept = generator.random((passes, features.shape[1])) >= rate
    return (features @ (weights * kept / (1 - rate)).T).std(axis=1)
