"""What is kept of a run is what was released, and it is refused where it does not belong."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sordino.algorithms.policy_optimization import PaidStep, RunState, read_state
from sordino.algorithms.policy_updates import Direction
from sordino.errors import DataError, UsageError


def step(number):
    direction = Direction(weights=np.array([0.1, number / 3]), error=0.5, projected=False)
    return PaidStep(release_id=f"id-{number}", direction=direction)


STATE = RunState(settings={"update": "npg", "step": 0.1}, run="run-1", drawn=1, steps=(step(0),))


def test_a_state_survives_its_file(tmp_path):
    path = tmp_path / "run.json"
    replace(STATE, steps=(*STATE.steps, step(1))).write(path)
    replace(STATE, steps=(*STATE.steps, step(1))).write(path)
    found = read_state(path)
    assert (found.settings, found.run, found.drawn) == (dict(STATE.settings), "run-1", 1)
    assert [one.digest for one in found.steps] == [step(0).digest, step(1).digest]
    assert repr(found) == "RunState(2 steps)"


def test_the_digest_is_of_what_was_released():
    assert step(0).digest != step(1).digest
    assert step(1).digest == step(1).digest


def test_no_file_is_no_state(tmp_path):
    STATE.write(None)
    assert read_state(None) is None
    assert read_state(tmp_path / "none.json") is None


@pytest.mark.parametrize("part", ["settings", "run", "drawn", "steps"])
def test_a_file_that_lacks_a_part_is_refused(tmp_path, part):
    path = tmp_path / "run.json"
    STATE.write(path)
    content = json.loads(path.read_text())
    del content[part]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="nothing was spent"):
        read_state(path)


def test_a_newer_file_is_refused(tmp_path):
    path = tmp_path / "run.json"
    STATE.write(path)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(DataError, match="newer"):
        read_state(path)


def test_other_settings_are_named():
    STATE.refuse_other_settings({"step": 0.1, "update": "npg"})
    for other in ({"update": "pg", "step": 0.1}, {"update": "npg"}, STATE.settings | {"x": 1}):
        with pytest.raises(UsageError, match="written with another"):
            STATE.refuse_other_settings(other)
