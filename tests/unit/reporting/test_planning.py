"""A forecast in plain words."""

from sordino import estimate
from sordino.reporting.curves import describe_forecast


def rows(n=20_000, *, dimension=8, epsilon=1.0, **more):
    return describe_forecast(estimate(n, dimension=dimension, epsilon=epsilon, **more))


def test_the_assumption_and_what_epsilon_means_are_said():
    found = rows()
    assert "65.0% of judgments (--accuracy" in found["assumption"]
    assert found["noise on labels"].startswith("accuracy 0.649")
    for name in ("labels", "label-estimate", "record-estimate"):
        assert "factor of 2.719" in found[f"epsilon, {name}"]
        assert "at most 73.2%" in found[f"epsilon, {name}"]
    assert "1 per label: " in found["epsilon, labels"]
    assert "delta 0; 26.9% of answers are flipped" in found["epsilon, labels"]
    assert "slack delta = 1 × 10⁻⁶; the curator sees" in found["epsilon, label-estimate"]
    assert "1 per record (prompt, answers and label; used, or" in found["epsilon, record-estimate"]
    assert "nothing was spent" in found["touched"]


def test_the_ways_are_compared():
    need = "noise on the estimate needs a curator who sees the labels and delta above 0"
    few, many = (rows(n, dimension=32)["compared"] for n in (200, 5000))
    assert few.startswith("noise on labels is best here; noise on the estimate needs")
    assert many.startswith(
        "noise on the estimate, labels hidden is best here, by 1.1 points of accuracy over noise "
    )
    assert need in few
    assert need in many


def test_ways_that_are_left_out_are_named():
    found = rows(delta=0.0)
    assert found["noise on the estimate, labels hidden"] == "left out, needs delta above 0"
    assert found["noise on the estimate, records hidden"] == "left out, needs delta above 0"
    assert found["compared"].startswith("noise on labels is best here; noise on the estimate needs")


def test_a_target():
    assert not [name for name in rows() if name.startswith("accuracy")]
    found = rows(target=0.64)["accuracy 0.64"]
    assert found == (
        "needs 1,976 labels with noise on labels, 714 labels with noise on the estimate, labels "
        "hidden, 719 labels with noise on the estimate, records hidden, 374 labels without privacy"
    )
    assert rows(target=0.5000001)["accuracy 0.5"].startswith("needs 1 label with noise on labels")
    assert "no number of labels reaches it" in rows(target=0.7)["accuracy 0.7"]
    assert "× 10" in rows(target=0.6499999999, epsilon=0.1)["accuracy 0.65"]


def test_one_person():
    assert (
        "m times epsilon with noise on labels; with noise on the estimate less"
        in rows()["one person"]
    )
    assert rows(delta=0.0)["one person"].endswith("m times epsilon with noise on labels")


def test_what_answers_are_worth():
    found = rows()["noise on labels"]
    assert found.endswith("about as much as 3,680 judgments without privacy")
    assert rows(2, epsilon=0.1)["noise on labels"].endswith(
        "less than one judgment without privacy"
    )
