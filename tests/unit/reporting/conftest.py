"""Inputs that every test of the report shares."""

import copy

import pytest

GUARANTEE = {
    "epsilon": 2.0, "delta": 0.0, "unit": "label", "neighbors": "REPLACE_ONE",
    "trust": "central", "randomness": "system",
}  # fmt: skip
RESULT = {
    "format": "sordino.result", "version": 1, "noise": "labels",
    "guarantee": GUARANTEE, "data": {"pairs": 4000},
    "reward": {
        "accuracy": 0.64, "accuracy_standard_error": 0.012, "negative_log_likelihood": 0.66,
        "calibration_slope": 0.97, "calibration_slope_standard_error": 0.1, "ridge": 3.2,
        "features": {"kind": "hashed-text", "dimension": 512}, "gradient_norm": 1e-6,
    },
    "policy": {
        "temperature": 0.5, "win_rate": 0.61, "win_rate_interval": [0.58, 0.64], "kl": 0.05,
    },
    "caveats": ["randomized-at-ingestion"], "seconds": 3.2,
    "public_evaluation": {
        "pairs": 2100, "accuracy": 0.59, "negative_log_likelihood": 0.68, "win_rate": 0.57,
    },
    "truth": {"kl_regret": 0.011, "value": 0.2, "best_value": 0.21},
}  # fmt: skip
LEDGER = {
    "data": "preferences", "budget": {**GUARANTEE, "epsilon": 3.0}, "total": GUARANTEE,
    "remaining_epsilon": 1.0, "head": "ab12" * 16, "rows": 4,
    "entries": [
        {
            "sequence": 2, "release_id": "5e0b8f7c41d24f6a9d1e", "kind": "reserve",
            "event": "randomized-response", "parameters": {"epsilon": 2.0, "categories": 2},
            "count": 1, "scope": "all", "time": "2026-11-21T01:37:00Z",
        }
    ],
}  # fmt: skip
CALIBRATION = [
    {"predicted": 0.2, "observed": -0.05, "low": -0.15, "high": 0.05, "pairs": 400},
    {"predicted": 0.5, "observed": 0.52, "low": 0.42, "high": 0.62, "pairs": 800},
    {"predicted": 0.8, "observed": 0.95, "low": 0.85, "high": 1.05, "pairs": 400},
]
CURVE = {0.1: 0.52, 1.0: 0.6, 2.0: 0.62, 4.0: 0.64, 10.0: 0.649}
PARTS = {
    "utility": {
        "curve": [{"epsilon": epsilon, "accuracy": share} for epsilon, share in CURVE.items()],
        "assumed_accuracy": 0.65, "effective_dimension": 12, "chosen_epsilon": 2.0,
    },
    "decisive": {
        "source": "comparisons", "features": 512,
        "rows": [
            {"name": "refusals", "weight": -8.0, "effect": -0.8},
            {"name": "word group 317", "weight": 2.0, "effect": 0.2},
        ],
    },
    "examples": {
        "source": "public",
        "rows": [
            {
                "prompt": "What is a fugue?",
                "answers": [
                    {"text": "A piece of music.", "reference": 0.5, "policy": 0.75},
                    {"text": "No idea.", "reference": 0.5, "policy": 0.25},
                ],
            }
        ],
    },
}  # fmt: skip
PESSIMISM = {
    "kind": "pessimistic", "confidence": 0.95, "scale": 1.0, "heuristic": False, "radius": 3.21,
    "mean_uncertainty": 14.2, "max_density_ratio": 1.61,
}  # fmt: skip
FIT = {"method": "mixture", "method_asked": "auto", "weight_standard_error": 0.12}


@pytest.fixture
def full(result):
    """A run that has every part."""
    result |= copy.deepcopy(PARTS)
    result["policy"]["pessimism"] = dict(PESSIMISM)
    result["reward"] |= FIT
    return result


@pytest.fixture
def result():
    return copy.deepcopy(RESULT)


@pytest.fixture
def ledger():
    return copy.deepcopy(LEDGER)


@pytest.fixture
def calibration():
    return copy.deepcopy(CALIBRATION)
