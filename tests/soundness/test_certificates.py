from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import sordino
from sordino._files import sha256_of
from sordino._withholding import Withholding
from sordino.rewards.estimation import fit_reward


@pytest.fixture
def released(linear_world, ledger):
    pairs, _ = linear_world(100, 3)
    account = ledger(2.0)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.5), ledger=account)
    return fit_reward(answers, ridge=1.0), account


def test_a_certificate_states_what_the_ledger_paid(released):
    reward, account = released
    certificate = sordino.certify(reward, account)
    assert certificate.guarantee.epsilon == 1.5
    assert certificate.guarantee.caveats == ("randomized-at-ingestion",)
    assert certificate.ledger_head == account.head
    assert certificate.ledger_total.epsilon == 1.5
    policy = sordino.gibbs_policy(reward, temperature=1.0)
    other = sordino.certify(policy, account)
    assert other.artifact == "policy"
    assert other.digest != certificate.digest
    assert account.head.digest in str(other.to_dict())


def test_an_artifact_cannot_claim_more_than_was_paid_for(released, budget):
    reward, account = released
    boastful = replace(reward, guarantee=budget(0.1))
    with pytest.raises(sordino.PrivacyError, match="claims"):
        sordino.certify(boastful, account)


def test_an_artifact_needs_its_own_ledger(released, ledger):
    reward, account = released
    with pytest.raises(sordino.PrivacyError, match="lacks an entry"):
        sordino.certify(reward, ledger(2.0))
    with pytest.raises(sordino.PrivacyError, match="lacks an entry"):
        sordino.certify(replace(reward, release_ids=()), account)


def test_entries_must_have_paid_for_these_answers(released):
    reward, account = released
    with pytest.raises(sordino.PrivacyError, match="other answers"):
        sordino.certify(replace(reward, artifact="00" * 32), account)


def test_an_entry_that_was_never_committed_certifies_nothing(linear_world, ledger, released):
    reward, _ = released
    account = ledger(2.0)
    coin = sordino.RandomizedResponse(1.0)
    promise = coin.guarantee(unit="label", neighbors=sordino.REPLACE_ONE, trust="central")
    reservation = account.reserve(coin.event, promise=promise)
    with pytest.raises(sordino.PrivacyError, match="never committed"):
        sordino.certify(replace(reward, release_ids=(reservation.release_id,)), account)


def test_simulated_randomness_is_certified_for_study_only(linear_world, ledger):
    pairs, _ = linear_world(100, 3)
    account = ledger(2.0)
    coin = sordino.RandomizedResponse(1.0)
    answers = sordino.privatize(pairs, coin, ledger=account, simulate_seed=3)
    reward = fit_reward(answers, ridge=1.0)
    with pytest.raises(sordino.PrivacyError, match="simulated"):
        sordino.certify(reward, account)
    certificate = sordino.certify(reward, account, for_study=True)
    assert certificate.guarantee.simulated
    assert "SIMULATED" in str(certificate)


def test_two_releases_of_the_same_data_compose(linear_world, ledger):
    pairs, _ = linear_world(100, 3)
    account = ledger(2.0)
    coin = sordino.RandomizedResponse(0.75)
    first = fit_reward(sordino.privatize(pairs, coin, ledger=account), ridge=1.0)
    second = fit_reward(sordino.privatize(pairs, coin, ledger=account), ridge=1.0)
    assert sordino.certify(first, account).guarantee.epsilon == 0.75
    certificate = sordino.certify(second, account)
    assert certificate.guarantee.epsilon == 0.75
    assert certificate.ledger_total.epsilon == 1.5


def test_answers_that_arrived_private_keep_the_promise_of_their_manifest(
    released, ledger, budget, tmp_path
):
    reward, _ = released
    account = ledger(2.0, trust="local")
    file, promise = tmp_path / "answers.jsonl", budget(1.5, trust="local")
    file.write_bytes(b"{}\n")
    told = {"sha256": sha256_of(file), "release_id": "5" * 16, "guarantee": promise}
    release_id = account.receive(file, SimpleNamespace(**told))
    assert account.receive(file, SimpleNamespace(**told)) == release_id
    with pytest.raises(sordino.DataError, match="not the file that its manifest is about"):
        account.receive(file, SimpleNamespace(**told | {"sha256": reward.artifact}))
    with pytest.raises(sordino.PrivacyError, match="other answers"):
        sordino.certify(replace(reward, release_ids=(release_id,)), account)
    arrived = replace(
        reward, release_ids=(release_id,), guarantee=promise, artifact=sha256_of(file)
    )
    certificate = sordino.certify(arrived, account)
    assert certificate.guarantee.trust == "local"
    assert certificate.guarantee.epsilon == 1.5
    assert certificate.ledger_total is None


def test_stored_answers_are_certified_by_the_entry_that_paid(linear_world, ledger):
    pairs, _ = linear_world(40, 3)
    people = [f"p{i % 9}" for i in range(40)]
    linked = sordino.Pairs.from_features(pairs.given, pairs.labels, persons=people)
    account = ledger(1.0)
    coin = sordino.RandomizedResponse(1.0)
    sordino.privatize(linked, coin, ledger=account)
    again = fit_reward(sordino.privatize(linked, coin, ledger=account), ridge=1.0)
    certificate = sordino.certify(again, account)
    assert certificate.guarantee.epsilon == 1.0
    assert certificate.ledger_total.epsilon == 1.0


@pytest.mark.parametrize(
    "claim",
    [
        {"unit": "person", "caveats": ("labels-only", "randomized-at-ingestion")},
        {"trust": "local"},
        {"caveats": ()},
    ],
)
def test_a_claim_about_something_else_is_not_certified(released, claim):
    reward, account = released
    boastful = replace(reward, guarantee=replace(reward.guarantee, **claim))
    with pytest.raises(sordino.PrivacyError, match="claims"):
        sordino.certify(boastful, account)


def test_pure_entries_are_certified_without_delta_on_any_budget(linear_world, tmp_path):
    pairs, _ = linear_world(60, 3)
    budget = sordino.Guarantee(
        2.0, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    account = sordino.Ledger.open(tmp_path / "spend.db", data="t", budget=budget)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.5), ledger=account)
    certificate = sordino.certify(fit_reward(answers, ridge=1.0), account)
    assert (certificate.guarantee.epsilon, certificate.guarantee.delta) == (1.5, 0.0)


def test_a_reward_cannot_be_fitted_on_a_design_of_other_answers(released):
    with pytest.raises(TypeError, match="design"):
        fit_reward(released, design=object())


def test_without_ids_or_a_cap_every_pair_is_answered(linear_world, ledger):
    pairs, _ = linear_world(37, 3)
    answers = sordino.privatize(pairs, sordino.RandomizedResponse(1.5), ledger=ledger(2.0))
    assert len(answers) == len(answers.answers) == 37


def test_what_is_withheld_is_never_certified(ledger):
    with pytest.raises(sordino.PrivacyError, match=r"nothing was certified.*ledger.total"):
        sordino.certify(Withholding(), ledger())


@pytest.mark.parametrize("stranger", [0.5, None, {"epsilon": 1.0}, object()])
def test_what_is_neither_reward_nor_policy_is_never_certified(stranger, ledger, budget):
    with pytest.raises(sordino.PrivacyError, match=r"RewardModel from fit_reward.*Nothing was"):
        sordino.certify(stranger, ledger())
    with pytest.raises(sordino.PrivacyError, match="got Guarantee"):
        sordino.certify(budget(), ledger())
