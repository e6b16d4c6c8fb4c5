"""The picture of a comparison: every curve is named, described and drawn the same twice."""

import xml.etree.ElementTree as ET

import pytest

from sordino.errors import UsageError
from sordino.reporting.training_curves import describe_training, write_training_curves


def curve(labels, *, method="dpo", ends=(0.5, 0.6)):
    values = {"steps": [1, 2], "mean": list(ends), "seeds": [list(ends), list(ends)]}
    return {"method": method, "labels": labels, "loss": values, "held_out_accuracy": values}


def test_the_picture_is_described_in_words():
    curves = [curve("epsilon=0.5"), curve("non-private", method="rebel", ends=(0.5, 0.71))]
    text = describe_training(curves)
    assert "DPO, ε = 0.5 from 0.500 to 0.600" in text
    assert "reward, non-private from 0.500 to 0.710" in text
    assert "not measured" in describe_training([])


def test_the_picture_is_the_same_every_time_and_read_aloud(tmp_path):
    curves = [curve("epsilon=0.5"), curve("epsilon=2"), curve("non-private")]
    for name in ("a.svg", "b.svg"):
        write_training_curves(tmp_path / name, curves)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    root = ET.fromstring(drawn)  # noqa: S314 (our own)
    assert root.attrib["aria-label"] == describe_training(curves)
    with pytest.raises(UsageError, match="exists already"):
        write_training_curves(tmp_path / "a.svg", curves)


def test_a_study_without_curves_is_drawn_empty(tmp_path):
    write_training_curves(tmp_path / "a.svg", [])
    empty = {"steps": [], "mean": [], "seeds": [[], []]}
    bare = {**curve("epsilon=1"), "held_out_accuracy": empty}
    write_training_curves(tmp_path / "b.svg", [bare])
    assert (tmp_path / "b.svg").stat().st_size > 1000


def test_a_simulated_study_is_marked_where_everybody_looks(tmp_path):
    curves = [curve("epsilon=0.5")]
    for name, simulated in (("a.svg", True), ("b.svg", False)):
        write_training_curves(tmp_path / name, curves, simulated=simulated)
    marked, plain = ((tmp_path / name).read_text() for name in ("a.svg", "b.svg"))
    assert 'id="simulated"' in marked  # the letters themselves, drawn as paths
    assert 'aria-label="SIMULATED: a seed was used' in marked
    assert "SIMULATED" not in plain
    assert 'id="simulated"' not in plain
