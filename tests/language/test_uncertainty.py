"""The elliptical bonus of last-layer features: its formula, its center, its honest name."""

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.language.rewards.uncertainty import (
    UNCERTAINTY_FILE,
    LastLayerUncertainty,
    read_uncertainty,
    write_uncertainty,
)
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.solver import Solution

pytest.importorskip("safetensors", reason="the extra 'language' is not installed")

D, N, FLIP = 6, 200, 0.3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(N, D)) + 1, rng.normal(size=(N, D)) + 1, rng.normal(size=D)


def in_batches(first, second, size=32):
    for start in range(0, len(first), size):
        yield first[start : start + size], second[start : start + size]


@pytest.fixture
def measured(rows):
    first, second, head = rows
    return LastLayerUncertainty.of(in_batches(first, second), head, flip_probability=FLIP)


def test_it_is_the_ellipsoid_of_a_linear_reward_on_the_same_features(rows):
    """An independent path through rewards.confidence: all rows at once."""
    first, second, head = rows
    settings = {"flip_probability": FLIP, "ball": 2.0, "ridge": 0.5}
    expected = confidence_ellipsoid(
        first - second,
        Solution(theta=head, gradient_norm=0.0, multiplier=0.0, passes=1),
        candidates=1,
        **settings,
    )
    found = LastLayerUncertainty.of(in_batches(first, second), head, **settings)
    assert np.allclose(found.ellipsoid.metric, expected.metric, rtol=1e-12)
    assert found.radius == pytest.approx(expected.radius(0.95), rel=1e-12)
    np.testing.assert_allclose(found.mean, np.vstack([first, second]).mean(axis=0), rtol=1e-12)


def test_the_bonus_is_the_formula(measured, rows):
    """Against one dense inverse, prompt by prompt."""
    first, _, _ = rows
    prompts = np.array([0, 1, 0, 2, 0, 1, 3, 3, 3, 3])
    some = first[: len(prompts)]
    inverse = np.linalg.inv(measured.ellipsoid.metric)
    for index, prompt in enumerate(prompts):
        beside = some[prompts == prompt]
        gap = some[index] - (beside.mean(axis=0) if len(beside) >= 3 else measured.mean)
        expected = measured.radius * np.sqrt(gap @ inverse @ gap)
        assert measured.bonus(some, prompts)[index] == pytest.approx(expected, rel=1e-9)


def test_two_answers_are_not_equally_far(measured):
    """Around their own mean they would be, and pessimism would change nothing between them."""
    near, far = measured.mean + 0.01, measured.mean + 5
    bonus = measured.bonus(np.array([near, far]), np.array([0, 0]))
    assert bonus[1] > 10 * bonus[0]


def test_more_pairs_leave_less_uncertainty_and_more_flips_leave_more(rows):
    first, second, head = rows
    answers, prompts = first[:9], np.zeros(9, dtype=int)

    def bonus(copies, flips):
        pairs = in_batches(np.tile(first, (copies, 1)), np.tile(second, (copies, 1)))
        known = LastLayerUncertainty.of(pairs, head, flip_probability=flips)
        return known.bonus(answers, prompts)

    assert (bonus(9, 0.3) < bonus(1, 0.3) / 2).all()
    assert (bonus(1, 0.45) > 2 * bonus(1, 0.3)).all()


def test_a_scale_of_the_features_that_the_head_undoes_changes_nothing(rows):
    first, second, head = rows
    prompts = np.zeros(5, dtype=int)
    one = LastLayerUncertainty.of([(first, second)], head, flip_probability=FLIP)
    other = LastLayerUncertainty.of([(9 * first, 9 * second)], head / 9, flip_probability=FLIP)
    np.testing.assert_allclose(
        one.bonus(first[:5], prompts), other.bonus(9 * first[:5], prompts), rtol=1e-9
    )


def test_it_calls_itself_a_heuristic(measured):
    assert "heuristic" in repr(measured)
    assert "HEURISTIC" in LastLayerUncertainty.__doc__


def test_it_survives_a_file(measured, rows, tmp_path):
    write_uncertainty(measured, tmp_path)
    back = read_uncertainty(tmp_path)
    assert back.to_dict() == measured.to_dict()
    prompts = np.zeros(7, dtype=int)
    assert np.array_equal(back.bonus(rows[0][:7], prompts), measured.bonus(rows[0][:7], prompts))
    write_uncertainty(None, tmp_path)
    assert read_uncertainty(tmp_path) is None


def test_its_digest_tells_another_metric(rows):
    first, second, head = rows
    found = [
        LastLayerUncertainty.of([(first, second * s)], head, flip_probability=FLIP).to_dict()
        for s in (1, 1.001)
    ]
    assert found[0]["metric"] != found[1]["metric"]


@pytest.mark.parametrize("cut", [0, 7, 200, -8])
def test_a_damaged_file_is_refused(measured, tmp_path, cut):
    write_uncertainty(measured, tmp_path)
    path = tmp_path / UNCERTAINTY_FILE
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="damaged"):
        read_uncertainty(tmp_path)


def test_a_newer_file_is_refused(measured, tmp_path):
    write_uncertainty(measured, tmp_path)
    path = tmp_path / UNCERTAINTY_FILE
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"2"'))
    with pytest.raises(DataError, match="newer"):
        read_uncertainty(tmp_path)


def test_bad_settings_are_refused(rows):
    first, second, head = rows
    pairs = [(first, second)]
    with pytest.raises(UsageError, match="are all 0"):
        LastLayerUncertainty.of(pairs, np.zeros(D), flip_probability=FLIP)
    for wrong in ({"ball": 0.0}, {"ridge": -1.0}, {"confidence": 1.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            LastLayerUncertainty.of(pairs, head, flip_probability=FLIP, **wrong)
    with pytest.raises(DataError, match="no pairs"):
        LastLayerUncertainty.of([], head, flip_probability=FLIP)
