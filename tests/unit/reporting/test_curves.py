"""Pictures of forecasts and of training: words for those who do not see them, same bytes."""

from xml.etree import ElementTree as ET

import pytest
from tests.tiers import few

from sordino import UsageError, estimate
from sordino.reporting.curves import (
    _describe_curves,
    _describe_training,
    _epsilon_panel,
    refuse_plot,
    write_curves,
    write_training_curves,
)
from sordino.rewards.forecast import IN_WORDS

SVG = "{http://www.w3.org/2000/svg}"


def forecast(n=2000, *, epsilon=1.0, **more):
    return estimate(n, dimension=16, epsilon=epsilon, **more)


@pytest.mark.deep
def test_a_picture_is_written_twice_alike(tmp_path):
    paths = [tmp_path / f"{name}.svg" for name in "ab"]
    for path in paths:
        write_curves(path, forecast())
    assert paths[0].read_bytes().startswith(b"<?xml")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_an_svg_says_what_it_shows(tmp_path):
    write_curves(tmp_path / "a.svg", forecast())
    root = ET.parse(tmp_path / "a.svg").getroot()  # noqa: S314 (made here)
    assert root.get("role") == "img"
    assert root.get("aria-label") == _describe_curves(forecast())
    assert root.find(f"{SVG}title").text.startswith("Predicted accuracy")


def test_the_description_holds_the_numbers():
    found = forecast()
    text = _describe_curves(found)
    for name, way in found.ways.items():
        assert f"with {IN_WORDS[name]} from 0.5" in text
        assert f"and {way.accuracy:.3f} at the chosen 1" in text
    assert "central" not in _describe_curves(forecast(delta=0.0))


@pytest.mark.parametrize("name", ["labels", "label-estimate", "record-estimate"])
def test_lines_pass_through_the_forecast(name):
    found = forecast()
    assert dict(dict(_epsilon_panel(found).lines)[name])[1.0] == found.ways[name].accuracy


def test_what_is_drawn_stands_where_its_numbers_are(tmp_path):
    found = forecast()
    write_curves(tmp_path / "a.svg", found)
    root = ET.parse(tmp_path / "a.svg").getroot()  # noqa: S314 (made here)
    panel = _epsilon_panel(found)
    drawn = root.find(f".//{SVG}polyline[@class='line labels']").get("points").split()
    at = [f"{panel.x.at(x):.1f},{panel.y.at(y):.1f}" for x, y in dict(panel.lines)["labels"]]
    assert drawn == at
    across = [float(point.partition(",")[0]) for point in drawn]
    assert (across[0], across[len(drawn) // 2], across[-1]) == (64.0, 540.0, 1016.0)  # logarithms


@pytest.mark.deep
@pytest.mark.parametrize(
    "found",
    few(
        [
            {"n": 1, "epsilon": 1e-6, "target": 0.6499999},
            {"n": 2**63 - 1, "epsilon": 44.0},
            {"n": 5, "epsilon": 300.0, "target": 0.9},
            {"n": 50, "epsilon": 1000.0, "delta": 1e-9},
            {"n": 50, "epsilon": 20.0, "delta": 1e-40},
            {"n": 50, "epsilon": 1.0, "delta": 0.0, "target": 0.6},
            {"n": 5, "epsilon": 0.05, "accuracy": 0.999, "target": 0.99},
        ],
        first=1,
    ),
)
def test_extreme_questions_are_drawn(tmp_path, found):
    foreseen = forecast(**found)
    write_curves(tmp_path / "a.svg", foreseen)
    drawn = (tmp_path / "a.svg").read_text()
    assert "nan" not in drawn
    assert all(f'class="line {way}"' in drawn for way in foreseen.ways)


@pytest.mark.parametrize("name", few(["a.jpg", "a.png", "a", "a.svg.gz", ".svg"], first=2))
def test_other_formats_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"must end in \.svg"):
        write_curves(tmp_path / name, forecast())
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    path = tmp_path / "a.SVG"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        refuse_plot(path, force=False)
    with pytest.raises(UsageError, match="exists"):
        write_curves(path, forecast())
    assert path.read_text() == "mine"
    write_curves(path, forecast(), force=True)
    assert path.read_bytes().startswith(b"<?xml")


# How training went.


def curve(labels, *, method="dpo", ends=(0.5, 0.6)):
    values = {"steps": [1, 2], "mean": list(ends), "seeds": [list(ends), list(ends)]}
    return {"method": method, "labels": labels, "loss": values, "held_out_accuracy": values}


def test_the_picture_is_described_in_words():
    found = [curve("epsilon=0.5"), curve("non-private", method="rebel", ends=(0.5, 0.71))]
    text = _describe_training(found)
    assert "DPO, ε = 0.5 from 0.500 to 0.600" in text
    assert "reward, non-private from 0.500 to 0.710" in text
    assert "not measured" in _describe_training([])


def test_the_picture_is_the_same_every_time_and_read_aloud(tmp_path):
    found = [curve("epsilon=0.5"), curve("epsilon=2"), curve("non-private")]
    for name in ("a.svg", "b.svg"):
        write_training_curves(tmp_path / name, found)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    root = ET.parse(tmp_path / "a.svg").getroot()  # noqa: S314 (made here)
    assert root.attrib["aria-label"] == _describe_training(found)
    with pytest.raises(UsageError, match="exists already"):
        write_training_curves(tmp_path / "a.svg", found)


def test_a_study_without_curves_is_drawn_empty(tmp_path):
    write_training_curves(tmp_path / "a.svg", [])
    empty = {"steps": [], "mean": [], "seeds": [[], []]}
    bare = {**curve("epsilon=1"), "held_out_accuracy": empty}
    write_training_curves(tmp_path / "b.svg", [bare])
    assert (tmp_path / "b.svg").stat().st_size > 1000


@pytest.mark.parametrize("ends", [(1.1, 1.3), (-0.4, -0.2), (0.4, 1.2)])
def test_accuracies_beyond_what_can_be_are_drawn_at_the_edge(tmp_path, ends):
    """Corrected for the flips, a share of few answers may lie there."""
    write_training_curves(tmp_path / "a.svg", [curve("epsilon=1", ends=ends)])
    assert "nan" not in (tmp_path / "a.svg").read_text()


def test_a_simulated_study_is_marked_where_everybody_looks(tmp_path):
    found = [curve("epsilon=0.5")]
    for name, simulated in (("a.svg", True), ("b.svg", False)):
        write_training_curves(tmp_path / name, found, simulated=simulated)
    marked, plain = ((tmp_path / name).read_text() for name in ("a.svg", "b.svg"))
    assert 'id="simulated"' in marked
    assert 'aria-label="SIMULATED: a seed was used' in marked
    assert "SIMULATED" not in plain
    assert 'id="simulated"' not in plain
