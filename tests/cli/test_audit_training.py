"""Training is audited from the command line, before there are data and before anything is paid."""

import pytest

from .conftest import refused

pytest.importorskip("trl", reason="the extra 'language' is not installed")

AUDIT = ["audit", "training", "tiny", "--epsilon", "2", "--trials", "4000", "--simulate-seed", "1"]


@pytest.mark.deep
@pytest.mark.parametrize("more", [[], ["--policy", "--lora", "2", "--partners", "4"]])
def test_the_training_of_a_model_is_not_refuted(ready, more):
    assert ready.run("init").code == 0  # a project, which would miss a ledger that is gone
    before = ready.state()
    said = ready.run(*AUDIT, *more, "--json")
    assert said.code == 0, said.err
    assert ready.state() == before
    found = said.value
    assert (found["kind"], found["verdict"]) == ("training", "not refuted")
    names = [row["attack"] for row in found["findings"]]
    assert names == ["worst-canary", "partners", "noise", "sampler", "gradients"]
    assert 0.8 < found["measured"][0]["lower"] <= 1.0
    assert found["claim"]["neighbors"] == "ADD_OR_REMOVE_ONE"


@pytest.mark.deep
def test_clipping_to_twice_the_bound_is_refuted(ready, monkeypatch):
    """Exit code 5, and a page that says so."""
    from sordino.language.dp_sgd import training

    real = training.ClippedSum
    monkeypatch.setattr(training, "ClippedSum", lambda model, bound: real(model, 2 * bound))
    said = ready.run(*AUDIT, "--out", "audit.html")
    assert said.code == 5
    assert "REFUTED" in said.out
    page = (ready / "audit.html").read_text()
    assert "of a step by 2" in page or "of a step by 1.9" in page


def test_what_cannot_be_audited_is_refused(ready):
    (ready / "empty").mkdir()
    refused(ready, ["audit", "training", "nowhere", "--epsilon", "2"], 7, "nowhere")
    refused(ready, [*AUDIT[:2], "tiny", "--epsilon", "0"], 2, "epsilon")
    refused(ready, [*AUDIT, "--neighbors", "replace"], 2, "neighbors")
    refused(ready, [*AUDIT[:5], "--trials", "7"], 2, "trials")
