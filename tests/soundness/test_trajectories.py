"""The longest difference of sums is attained, and never passed, whatever hidden steps hold."""

import numpy as np
import pytest

from sordino.preferences.trajectories import read_trajectories

HIDDEN = {"hides_records": True, "person_field": None, "horizon": 3, "dimension": 2}


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e12, 1e150])
@pytest.mark.parametrize("bound", [0.1, 1.0, 3.0])
def test_no_step_counts_more_than_was_said(size, bound):
    """A step of a hidden trajectory moves the sum by 2L at most: the others stay what they are."""
    usual, odd = [[0.05, 0.0]] * 3, [[0.05, 0.0], [size, -size], [0.05, 0.0]]
    far, away = [[size, size]] * 3, [[-0.05, 0.0]] * 3
    opposite = [[-size, -size]] * 3
    rows = [
        {"first": one, "second": other, "label": 1}
        for one, other in ((odd, away), (usual, away), (far, opposite))
    ]
    read = read_trajectories(rows, feature_bound=bound, **HIDDEN)
    one, other, farthest = read.pairs.given
    signs = [1, -1]  # a row is turned by what it holds
    moved = min(np.linalg.norm(one - sign * other) for sign in signs)
    assert moved <= 2 * bound * (1 + 1e-12)
    assert (np.linalg.norm(read.pairs.given, axis=1) <= read.difference_bound).all()
    if size > 3:  # attained: the bound is not loose
        assert np.linalg.norm(farthest) == pytest.approx(read.difference_bound, rel=1e-12)
