"""Training on raw pairs: what a step is, what it pays, and that nothing else comes out.

What breaks clipping without an error elsewhere is right here, or refused with a way out.
"""

import contextlib
import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import dp_accounting
import torch
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from peft import LoraConfig, get_peft_model
from torch.nn.functional import softplus
from transformers import (
    AutoModelForCausalLM,
    TrainerCallback,
)

import sordino
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.language import (
    PrivateDPOConfig,
    PrivateDPOTrainer,
)
from sordino.language.dp_sgd import training
from sordino.language.dp_sgd.clipping import differences
from sordino.language.dp_sgd.training import (
    _invented_units,
    log_ratio_gaps,
)
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import CheckpointPromise
from sordino.language.training import losses
from sordino.preferences.pairs import Pairs
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

from ._training import (
    Killed,
    assert_only_weights_differ,
    awake,
    files_of,
    log_probability,
    moved,
    privacy,
    trained,
)

SAME = 1e-5  # gradients by hand are rounded otherwise
TEMPERATURE = 0.3
ADAPTERS = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS")
SAVING = {"save_strategy": "steps", "save_steps": 3}


@pytest.fixture
def dpo(central):
    """Return a maker of trainers of a policy, of fewer steps."""

    def make(model=None, pairs=None, *, terms=None, args=None, **more):
        args = {"temperature": TEMPERATURE, **(args or {})}
        terms = terms or privacy(steps=4)
        return central(pairs, kind="dpo", model=model, terms=terms, args=args, **more)

    return make


@pytest.fixture
def silent(monkeypatch):
    """Replace the noise by none, and keep its stated size."""
    sizes = []
    monkeypatch.setattr(
        training, "add_gradient_noise", lambda _, size, *, entropy: sizes.append(size)
    )
    return sizes


@pytest.mark.parametrize("kind", few(["reward", "dpo"], first=1))
def test_the_entry_comes_before_anybody_is_drawn(central, ledger_of, monkeypatch, kind):
    ledger, order = ledger_of(), []
    sample = training.poisson_sample
    monkeypatch.setattr(
        training,
        "poisson_sample",
        lambda *a, **k: order.append(steps_of(sordino.Ledger.read(ledger.path))) or sample(*a, **k),
    )
    trained(central(kind=kind, ledger=ledger, args=SAVING))
    assert order == [3, 3, 3, 6, 6, 6, 8, 8]


@pytest.mark.parametrize("kind", few(["reward", "dpo"], first=1))
def test_another_loss_is_one_function(central, word_pairs, monkeypatch, kind):
    """That of Azar et al. (2024), which neither settings nor trainers know but by its name."""
    seen = []

    def squared(margins, flip_probability=0.0, *, liked=1.0):
        seen.append(margins)
        return margins.square() - margins * (2 * liked - 1) + 0.25

    monkeypatch.setitem(losses.LOSSES, "squared", squared)
    trainer = awake(central(word_pairs(3), kind=kind, args={"loss": "squared"}))
    moved(trainer.model)
    with torch.no_grad():
        found = trainer._losses(trainer.model.eval(), trainer._units)
    signs = torch.tensor([2 * unit[0].liked - 1 for unit in trainer._units])
    torch.testing.assert_close(found, (signs * seen[-1] - 0.5).square())
    assert trainer._promise.training["preference_loss"] == "squared"
    trainer._test(trainer.model)


def test_an_undecided_pair_pulls_both_ways(central, word_pairs):
    pairs = replace(word_pairs(3), labels=np.array([0, 1, 2]))
    assert [unit[0].liked for unit in central(pairs)._units] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    "wrong",
    [
        {"bf16": True}, {"fp16": True}, {"max_grad_norm": 1.0}, {"gradient_accumulation_steps": 2},
        {"per_device_train_batch_size": 4}, {"save_strategy": "epoch"}, {"max_steps": 7},
        {"auto_find_batch_size": True}, {"eval_on_start": True}, {"load_best_model_at_end": True},
        {"train_sampling_strategy": "group_by_length"}, {"train_sampling_strategy": "sequential"},
        {"dataloader_drop_last": True}, {"data_seed": 1}, {"skip_memory_metrics": False},
        {"debug": "underflow_overflow"}, {"torch_compile": True}, {"neftune_noise_alpha": 5.0},
        {"torch_compile_mode": "default"}, {"torch_compile_backend": "eager"}, {"loss": "hinge"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_settings_that_would_promise_something_else_are_refused(central, wrong):
    with pytest.raises(UsageError, match=r"Nothing was trained|must be one of") as caught:
        central(args=wrong)
    assert next(iter(wrong)).removesuffix("_mode").removesuffix("_backend") in str(caught.value)


class Gradients(TrainerCallback):
    """Keeps what the optimizer is about to read."""

    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.seen.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
        )


def by_hand(trainer, pairs, people, clip):
    """Return the clipped sum of the gradients of people, each by autograd alone."""
    trained = [one for one in trainer.model.parameters() if one.requires_grad]
    total = [torch.zeros_like(one, dtype=torch.float64) for one in trained]
    for rows in people:
        loss = 0.0
        for row in rows:
            dialogues = [
                trainer._tokens.dialogue(pairs.prompts[row], answer)
                for answer in (pairs.first[row], pairs.second[row])
            ]
            one, other = (
                trainer.model(input_ids=torch.tensor([[*d.prompt, *d.answer]])).logits[0, 0]
                for d in dialogues
            )
            label = float(pairs.labels[row])
            loss = loss + label * softplus(other - one) + (1 - label) * softplus(one - other)
        found = [g.double() for g in torch.autograd.grad(loss, trained)]
        norm = math.sqrt(sum(float(g.square().sum()) for g in found))
        total = [a + g * min(1, clip / norm) for a, g in zip(total, found, strict=True)]
    return total


def difference(gradients, sums, expected_batch):
    """Return how far gradients are from sums over a number, relatively."""
    found = torch.cat([one.double().flatten() for one in gradients.values()])
    wanted = torch.cat([one.flatten() for one in sums]) / expected_batch
    return float((found - wanted).norm() / wanted.norm())


def test_a_step_is_the_clipped_sum_over_a_public_number(central, word_pairs, silent):
    pairs, keep = word_pairs(12), Gradients()
    terms = privacy(sampling_probability=1.0, steps=1, epsilon=50.0, clip=0.7, expected_batch=17)
    trainer = awake(central(pairs, terms=terms, callbacks=[keep]))
    expected = by_hand(trainer, pairs, [[i] for i in range(12)], 0.7)
    trained(trainer)
    assert difference(keep.seen[0], expected, 17) < SAME
    assert silent == [pytest.approx(0.7 * terms.noise_multiplier)]


def test_dropout_is_off_and_layers_recompute(central, word_pairs, silent, monkeypatch):
    pairs, keep = word_pairs(6), Gradients()
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS", lora_dropout=0.5)
    terms = privacy(sampling_probability=1.0, steps=1, epsilon=50.0, clip=0.7, expected_batch=17)
    how = {"callbacks": [keep], "args": {"activation_checkpointing": True}, "peft_config": lora}
    trainer = awake(central(pairs, terms=terms, **how))
    read = []
    layer = trainer.model.base_model.model.model.layers[0].mlp
    layer.register_forward_pre_hook(lambda *_: read.append(1))
    trainer.model.eval()
    expected = by_hand(trainer, pairs, [[i] for i in range(6)], 0.7)
    trainer.model.train()
    read.clear()
    monkeypatch.setattr(training, "refuse_shared_gradients", lambda *_: None)
    trained(trainer)
    assert difference(keep.seen[0], expected, 17) < SAME
    assert len(read) == 12  # six pairs, each read forward and once more


def test_all_pairs_of_a_person_are_one_contribution(central, word_pairs, ledger_of, silent):
    pairs, keep = word_pairs(9), Gradients()
    pairs = replace(pairs, persons=tuple("abacabbaa"))
    terms = privacy(
        unit="person", neighbors=REPLACE_SPECIAL, cap=3, sampling_probability=1.0, steps=1,
        epsilon=50.0, clip=0.5,
    )  # fmt: skip
    ledger = ledger_of(unit="person", neighbors=REPLACE_SPECIAL)
    trainer = awake(central(pairs, terms=terms, ledger=ledger, callbacks=[keep]))
    expected = by_hand(trainer, pairs, [[0, 2, 4], [1, 5, 6], [3]], 0.5)
    trained(trainer)
    assert difference(keep.seen[0], expected, 10) < SAME


def test_an_empty_batch_is_noise_alone(central, word_pairs, monkeypatch):
    keep = Gradients()
    monkeypatch.setattr(training, "poisson_sample", lambda *_, **__: [])
    trainer = central(word_pairs(2), callbacks=[keep], simulate_seed=1)
    trained(trainer)
    size = privacy().noise_multiplier / 10
    for gradients in keep.seen:
        values = torch.cat([one.flatten() for one in gradients.values()]).double()
        assert len(values) > 10_000
        # chance of a false alarm below 1e-6: five standard errors, eight times, seeded
        assert abs(values.mean()) < 5 * size / math.sqrt(len(values))
        assert abs(values.std() / size - 1) < 5 / math.sqrt(2 * len(values))
    assert len(keep.seen) == 8


def test_a_step_that_fails_leaves_no_sum_without_noise(central, monkeypatch):
    """Whoever catches the error holds the model."""
    trainer = central()

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_add_noise", fails)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert all(one.grad is None for one in trainer.model.parameters())


@pytest.mark.deep
@pytest.mark.parametrize("killed", [1, 4, 7])
def test_a_killed_run_pays_again_and_never_counts_less_than_was_drawn(
    central, ledger_of, killed, silent
):
    ledger, saving = ledger_of(), SAVING
    with pytest.raises(KeyboardInterrupt):
        trained(central(ledger=ledger, args=saving, callbacks=[Killed(killed)]))
    assert len(silent) == killed
    assert steps_of(ledger) >= killed
    again = central(ledger=ledger, args=saving)
    if killed < 3:
        with pytest.raises(UsageError, match="no complete checkpoint"):
            trained(again, resume_from_checkpoint=True)
        trained(again)
    else:
        trained(again, resume_from_checkpoint=True)
    kept = killed // 3 * 3
    assert len(silent) == killed + 8 - kept
    paid = {1: [3, 3, 3, 2], 4: [3, 3, 3, 2], 7: [3, 3, 2, 2]}[killed]
    assert [json.loads(row.parameters)["steps"] for row in ledger.spends] == paid
    assert steps_of(ledger) >= len(silent)
    total = ledger.total().epsilon
    promise = CheckpointPromise.read(Path(again.args.output_dir) / "checkpoint-8")
    if killed >= 3:
        assert promise.guarantee.epsilon == pytest.approx(total, rel=1e-6)
        assert len(promise.release_ids) == 4
    assert promise.guarantee.epsilon > 4.0 * (killed >= 3)
    assert again.text_reward().guarantee == again._promise.guarantee


def steps_of(ledger):
    return sum(json.loads(row.parameters)["steps"] * row.count for row in ledger.spends)


def test_without_budget_nothing_is_drawn(central, ledger_of, silent):
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        trained(central(ledger=ledger_of(3.9)))
    saving = SAVING
    with pytest.raises(BudgetExceeded):  # the first parts alone would fit
        trained(central(ledger=ledger_of(3.9), args=saving))
    assert silent == []
    ledger = ledger_of(4.0)
    with pytest.raises(KeyboardInterrupt):
        trained(central(ledger=ledger, args=saving, callbacks=[Killed(5)]))
    drawn, before = len(silent), ledger.head
    with pytest.raises(BudgetExceeded):
        trained(central(ledger=ledger, args=saving), resume_from_checkpoint=True)
    assert (len(silent), ledger.head) == (drawn, before)


@pytest.mark.deep
def test_parts_fit_the_budget_of_the_whole(central, ledger_of):
    ledger = ledger_of(4.0)
    trainer = trained(central(ledger=ledger, args={"save_strategy": "steps", "save_steps": 1}))
    assert len(ledger.spends) == 8
    assert 3.99 < trainer._promise.guarantee.epsilon <= 4.0


class Crash(Exception):
    """What a power cut is here."""


@pytest.mark.deep
def test_fifty_kills_at_random_points_never_count_less_than_was_drawn(
    central, ledger_of, monkeypatch
):
    """Kills before and after every entry, draw and file; the run is resumed until it is done."""
    chance, drawn, ledger = np.random.default_rng(4), [], ledger_of(500.0)
    crash = {"on": True, "kills": 0}

    def fragile(owner, name, *, counted=False):
        real = getattr(owner, name)

        def call(*arguments, **named):
            perhaps()
            if counted:
                drawn.append(steps_of(sordino.Ledger.read(ledger.path)))
            result = real(*arguments, **named)
            perhaps()
            return result

        monkeypatch.setattr(owner, name, call)

    def perhaps():
        if crash["on"] and crash["kills"] < 50 and chance.random() < 0.12:
            crash["kills"] += 1
            raise Crash

    fragile(training.CentralRun, "pay")
    fragile(training, "poisson_sample", counted=True)
    fragile(training, "add_gradient_noise")
    fragile(training, "weights_digest")
    fragile(CheckpointPromise, "write")
    fragile(sordino.Ledger, "_outcome")
    fragile(sordino.Ledger, "repeat")
    saving = {"save_strategy": "steps", "save_steps": 2}
    while crash["kills"] < 50:
        trainer = central(ledger=ledger, args=saving, folder=f"run-{crash['kills'] // 10}")
        try:
            trained(trainer, resume_from_checkpoint=True)
        except Crash:
            pass
        except UsageError as error:  # no checkpoint yet, or all steps were taken
            if "took all" in str(error):
                trainer.args.output_dir += "-again"
            with contextlib.suppress(Crash):
                trained(trainer)
    assert len(drawn) > 30
    assert all(paid >= number for number, paid in enumerate(drawn, 1))
    assert steps_of(ledger) >= len(drawn)


def test_the_ledger_certifies_the_reward(central, ledger_of):
    from sordino.certificates import certify

    ledger = ledger_of()
    reward = trained(central(ledger=ledger)).text_reward()
    certificate = certify(reward, ledger)
    assert certificate.guarantee.epsilon <= 4.0
    assert set(certificate.guarantee.caveats) == {"person-group", "real-arithmetic", "timing"}


def test_steps_outside_of_a_run_are_paid_for_too(central, ledger_of, silent):
    ledger = ledger_of()
    trainer = central(ledger=ledger)
    for _ in range(9):
        trainer.training_step(trainer.model, {})
    assert len(silent) == 9
    assert steps_of(ledger) == 16


def test_a_finished_run_another_ledger_and_other_settings_are_refused(central, ledger_of):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 4}
    trained(central(ledger=ledger, args=saving))
    with pytest.raises(UsageError, match="took all"):
        trained(central(ledger=ledger, args=saving), resume_from_checkpoint=True)
    assert steps_of(ledger) == 8
    with pytest.raises(LedgerMismatch, match="did not pay"):
        trained(central(ledger=ledger_of(), args=saving), resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="another privacy"):
        trained(central(ledger=ledger, args=saving, terms=privacy(clip=2.0)), resume_from_checkpoint=True)  # fmt: skip  # noqa: E501
    for wrong in ({"unit": "person"}, {"neighbors": REPLACE_SPECIAL}):
        with pytest.raises(PrivacyError, match="counts unit"):
            central(ledger=ledger_of(**wrong))


def test_measuring_and_pairs_of_another_kind_are_refused(central, word_pairs, open_ledger):
    class Asking(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_evaluate = True

    with pytest.raises(PrivacyError, match="metric"):
        central().evaluate()
    with pytest.raises(PrivacyError, match="metric"):
        trained(central(callbacks=[Asking()]))
    private = sordino.privatize(
        word_pairs(8), sordino.RandomizedResponse(1.0), ledger=open_ledger(1.0), simulate_seed=1
    )
    with pytest.raises(UsageError, match="PrivateRewardTrainer"):
        central(private)
    with pytest.raises(UsageError, match="raw pairs"):
        central([1])


def test_a_record_with_several_labels_is_no_unit_for_each(central):
    several = {"prompt": "tell me", "first": "kind", "second": "rude", "labels": [1] * 9}
    with pytest.raises(PrivacyError, match="a record of its own"):
        central(sordino.read_pairs([several]))


def test_no_message_names_a_record(central, word_pairs):
    pairs = word_pairs(4)
    pairs = replace(pairs, second=(*pairs.second[:3], "secret " * 100))
    keys = sordino.read_pairs([
        {"prompt": p, "first": a, "second": b, "label": 1}
        for p, a, b in zip(pairs.prompts, pairs.first, pairs.second, strict=True)
    ])  # fmt: skip
    with pytest.raises(DataError) as caught:
        central(keys)
    assert "secret" not in str(caught.value)
    assert not any(char.isdigit() for char in str(caught.value))


@pytest.mark.deep
@pytest.mark.parametrize("which", ["tiny_llama", "tiny_gpt2"])
def test_the_loss_is_that_of_the_paper_token_by_token(dpo, word_pairs, request, which):
    folder, pairs = request.getfixturevalue(which), word_pairs(5, seed=2)
    trainer = dpo(str(folder), pairs)
    reference = load_causal_model(str(folder))
    policy = moved(trainer.model).eval()
    with torch.no_grad():
        found = trainer._losses(policy, trainer._units)
        for row, loss in enumerate(found):
            dialogues = [
                trainer._tokens.dialogue(pairs.prompts[row], answer)
                for answer in (pairs.first[row], pairs.second[row])
            ]
            one, other = (
                log_probability(policy, *each) - log_probability(reference, *each)
                for each in dialogues
            )
            sign = 1 if pairs.labels[row] == 1 else -1
            wanted = math.log1p(math.exp(-sign * TEMPERATURE * float(one - other)))
            assert float(loss) == pytest.approx(wanted, rel=2e-5)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("which", few(["tiny_llama", "tiny_gpt2"], first=1))
def test_gradients_of_pairs_are_those_of_autograd(dpo, word_pairs, request, which, adapted):
    turned = {"fan_in_fan_out": which == "tiny_gpt2"}
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", **turned)
    folder = str(request.getfixturevalue(which))
    trainer = dpo(folder, word_pairs(6), peft_config=lora if adapted else None)
    model = moved(trainer.model)
    found = differences(
        model,
        trainer._losses,
        lambda units, bound: trainer._own_sum(model, units, bound).values(),
        trainer._units,
    )
    assert found.gradients < 1e-5
    assert found.partners < 1e-12
    assert found.moved <= 1


def test_at_the_start_the_policy_is_its_reference(dpo, tiny_llama):
    trainer = dpo()
    pairs = [pair for unit in trainer._units for pair in unit]
    with torch.no_grad():
        gaps = log_ratio_gaps(trainer.model.eval(), pairs, padding=0)
    np.testing.assert_allclose(gaps.numpy(), [pair.reference for pair in pairs], atol=1e-5)
    assert np.abs(gaps.numpy()).max() > 0.1
    other = moved(load_causal_model(str(tiny_llama)))
    elsewhere = dpo(reference=other, folder="other", declare_unread=True)
    pulled = [pair.reference for unit in elsewhere._units for pair in unit]
    assert np.abs(np.subtract(pulled, gaps.numpy())).max() > 0.05


@pytest.mark.deep
def test_with_next_to_no_noise_the_policy_learns_what_people_like(dpo, word_pairs):
    """Guessing 100 pairs is right in more than .65 with chance 1e-3; the coins are simulated."""
    terms = privacy(epsilon=500.0, sampling_probability=0.2, steps=60, expected_batch=60)
    trainer = trained(dpo(None, word_pairs(300, strength=4.0), terms=terms, simulate_seed=1))
    fresh = word_pairs(100, seed=9, strength=8.0)
    judged = dpo(None, fresh, folder="judged")
    pairs = [pair for unit in judged._units for pair in unit]
    with torch.no_grad():
        gaps = log_ratio_gaps(trainer.model.eval(), pairs, padding=0).numpy()
    grown = gaps - np.array([pair.reference for pair in pairs])
    right = (grown > 0) == np.array([pair.liked == 1 for pair in pairs])
    assert right.mean() > 0.65


def test_a_run_goes_on_near_the_same_reference_only(dpo, ledger_of, tiny_llama):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 2}
    trained(dpo(ledger=ledger, args=saving, declare_unread=True))
    other = moved(load_causal_model(str(tiny_llama)))
    again = dpo(ledger=ledger, args=saving, reference=other, declare_unread=True)
    with pytest.raises(UsageError, match="another reference"):
        trained(again, resume_from_checkpoint=True)


def test_the_trainers_of_randomized_answers_refuse_raw_pairs_and_name_the_others(
    tiny_llama, word_pairs, tmp_path
):
    with pytest.raises(PrivacyError, match="CentralDPOTrainer"):
        PrivateDPOTrainer(
            str(tiny_llama), args=PrivateDPOConfig(str(tmp_path)), train_dataset=word_pairs(8)
        )


def test_a_delta_that_would_publish_somebody_is_refused():
    with pytest.raises(UsageError, match=r"delta must be below 0\.001"):
        privacy(delta=0.025)
    with pytest.raises(UsageError, match="below 1/n=1/4000, got"):
        privacy(delta=5e-4, sampling_probability=1e-3, expected_batch=4.0)
    for more in ({"delta": 0.025}, {"delta": 5e-4, "expected_batch": 4.0}):
        taken = privacy(**{"sampling_probability": 1e-3, **more}, accept_weak=True)
        assert "weak-promise" in taken.guarantee.caveats
    assert "weak-promise" not in privacy(accept_weak=True).guarantee.caveats


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL])
def test_the_noise_is_the_least_that_keeps_the_promise(neighbors):
    """Beside what dp_accounting says of the same steps, computed here."""
    terms = privacy(neighbors=neighbors)
    spent = composed_epsilon({terms.event(8): 1}, neighbors=neighbors, delta=1e-5)
    assert 3.99 < spent <= 4.0
    one = from_gaussian_mechanism(
        terms.noise_multiplier, sampling_prob=0.25, value_discretization_interval=1e-4,
        neighboring_relation=dp_accounting.NeighboringRelation[neighbors.name],
    )  # fmt: skip
    assert one.self_compose(8).get_epsilon_for_delta(1e-5) == pytest.approx(spent, rel=1e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0}, {"epsilon": math.inf}, {"delta": 0}, {"delta": 1}, {"unit": "label"},
        {"neighbors": REPLACE_ONE}, {"sampling_probability": 0}, {"sampling_probability": 1.1},
        {"steps": 0}, {"steps": 1.5}, {"expected_batch": 0}, {"clip": 0}, {"clip": math.inf},
        {"cap": 2}, {"unit": "person"}, {"unit": "person", "cap": 0},
    ],
)  # fmt: skip
def test_settings_that_promise_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        privacy(**wrong)


def differs(trainer):
    """Return how far what the trainer clips is from autograd, one unit at a time."""

    def sums(units, bound):
        return trainer._own_sum(trainer.model, units, bound).values()

    found = differences(trainer.model, trainer._losses, sums, trainer._units[:4])
    return max(found.gradients, found.partners)


def nothing_spent(trainer, match):
    with pytest.raises(UsageError, match=match) as caught:
        trained(trainer)
    assert not trainer._ledger.spends
    return str(caught.value)


# Models.


@pytest.mark.parametrize("tied", few([True, False], first=1))
def test_the_head_of_a_policy_is_not_hidden(central, tiny_llama, tied):

    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    trainer = central(model=model, kind="dpo")
    assert differs(trainer) < 1e-4
    trained(trainer)


@pytest.mark.deep
def test_adapters_are_clipped_whenever_they_are_added(central, tiny_llama):
    """By the trainer, before it on a model that is on its device, and after it was made."""
    early = load_reward_checkpoint(tiny_llama).to("cpu")
    by_trainer = central(model=early, peft_config=ADAPTERS)
    with upstream():
        before = central(model=get_peft_model(load_reward_checkpoint(tiny_llama), ADAPTERS))
        after = central()
        get_peft_model(after.model, LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    for trainer in (by_trainer, before, after):
        assert differs(trainer) < 1e-5
        weights = {name: one.clone() for name, one in trainer.model.named_parameters()}
        trained(trainer)
        moved = {
            name
            for name, one in trainer.model.named_parameters()
            if not torch.equal(weights[name], one)
        }
        trainable = {name for name, one in trainer.model.named_parameters() if one.requires_grad}
        assert moved == trainable
        assert any("lora_A" in name for name in moved)


class Scaled(torch.nn.Module):
    """A head whose parameter enters in a way that nobody declared."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.factor = inner, torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.factor * self.inner(x)


def test_a_layer_of_the_user_is_served(central, tiny_llama):
    model = load_reward_checkpoint(tiny_llama)
    model.score = Scaled(model.score)
    assert differs(central(model=model)) < 1e-5


# Arithmetic.


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["reward", "dpo"])
def test_an_accelerator_trains_as_the_processor_does(central, kind):
    if not torch.cuda.is_available():
        pytest.skip("there is no accelerator")
    runs = []
    for use_cpu in (True, False):
        args = {"use_cpu": use_cpu, "dataloader_pin_memory": False}
        trainer = central(kind=kind, folder=f"run {use_cpu}", args=args, simulate_seed=3)
        before = [one.detach().cpu().clone() for one in trainer.model.parameters()]
        trained(trainer)
        assert trainer.model.device.type == ("cpu" if use_cpu else "cuda")
        after = [one.detach().cpu() for one in trainer.model.parameters()]
        runs.append([one - other for one, other in zip(after, before, strict=True)])
    gaps = [float((one - other).abs().max()) for one, other in zip(*runs, strict=True)]
    assert max(gaps) < 1e-4
    assert max(float(one.abs().max()) for one in runs[0]) > 1e-2  # both went somewhere


def test_halved_parameters_are_refused(central, tiny_llama):
    model = load_reward_checkpoint(tiny_llama).to(torch.bfloat16)
    assert "float32" in nothing_spent(central(model=model), "32-bit")


@pytest.mark.parametrize("switch", few(["tf32", "bf16"], first=1))
def test_coarse_products_are_refused_by_whatever_name_they_are_switched_on(central, switch):
    """``tf32=True`` sets the newer switch of torch, of which the older one knows nothing."""
    trainer = central()
    place = torch.backends.cuda.matmul if switch == "tf32" else torch.backends.mkldnn.matmul
    place.fp32_precision = switch
    try:
        assert "set_float32_matmul_precision" in nothing_spent(trainer, "TF32")
        torch.set_float32_matmul_precision("highest")  # as the message says
        trained(trainer)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_steps_are_not_joined_by_another_name(central):
    """transformers would take two steps for one, and pay twice for half of the noise's use."""
    more = {"gradient_accumulation_kwargs": {"num_steps": 2}}
    nothing_spent(central(args={"accelerator_config": more}), "gradient_accumulation_steps")


def test_what_changes_after_the_trainer_was_made_is_refused(central):
    trainer = central()
    with torch.autocast("cpu", torch.bfloat16):
        nothing_spent(trainer, "32-bit floats")
    trainer.args.max_grad_norm = 1.0
    nothing_spent(trainer, "max_grad_norm")
    trainer.args.max_grad_norm, trainer.args._n_gpu = 0.0, 2
    nothing_spent(trainer, "one device")


def test_what_a_data_loader_is_told_is_not_used(central, word_pairs):
    """Workers, prefetching and an own order are for loaders of pairs, and none is made."""
    args = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "seed": 5}
    trainer = central(args={**args, "dataloader_prefetch_factor": 2})
    loader = trainer.get_train_dataloader()
    assert loader.num_workers == 0
    assert next(iter(loader)) == {}
    assert trainer.train_dataset is None
    trained(trainer)
    with pytest.raises(TypeError):
        central(data_collator=lambda rows: rows)


# What comes out.


class Spy(TrainerCallback):
    """Keeps what callbacks are shown."""

    def __init__(self):
        self.shown = []

    def on_step_end(self, args, state, control, **given):
        state = {name: value for name, value in vars(state).items() if name != "trial_name"}
        self.shown.append(repr((sorted(given), state)))

    def on_log(self, args, state, control, logs=None, **given):
        self.shown.append(repr(logs))


def people(word_pairs, n):
    """Return some pairs, or forty whose labels are turned around."""
    pairs = word_pairs(40)
    if n == "turned":
        return replace(pairs, labels=1 - pairs.labels)
    return pairs.part(range(n)) if n < 40 else pairs


@pytest.fixture
def runs(central, word_pairs, monkeypatch, tmp_path, caplog):
    """Train on nobody, some, and other labels; return what files, callbacks and logs show."""
    monkeypatch.setattr("sordino.language.dp_sgd.privacy.new_release_id", lambda: "r")
    caplog.set_level(logging.INFO, logger="transformers")
    found = {}
    for n in (0, 1, 2, 40, "turned"):
        ids = iter(f"{i:016x}" for i in range(99))
        monkeypatch.setattr("sordino._random.new_release_id", ids.__next__)
        saving = {"save_strategy": "steps", "save_steps": 4, "include_num_input_tokens_seen": "all"}
        spy = Spy()
        args = {**saving, "log_level": "info", "weight_decay": 0.1, "logging_nan_inf_filter": False}
        trainer = central(people(word_pairs, n), args=args, callbacks=[spy], simulate_seed=3)
        result = trainer.train()
        found[n] = {
            "steps": trainer.state.global_step,
            "logs": trainer.state.log_history,
            "callbacks": spy.shown,
            "messages": [one.getMessage() for one in caplog.records],
            "result": repr(result),
            "promise": trainer._promise.guarantee,
            "contents": files_of(tmp_path / "run"),
            "random": torch.load(tmp_path / "run/checkpoint-8/rng_state.pth", weights_only=False),
            "finite": all(bool(one.isfinite().all()) for one in trainer.model.parameters()),
        }
        caplog.clear()
        (tmp_path / "run").rename(tmp_path / f"run-{n}")
    return found


@pytest.mark.deep
def test_nothing_that_comes_out_tells_how_many_there_are(runs):
    """Nobody, one, forty, other labels: all but weights is the same."""
    alone, *others = runs.values()
    assert alone["steps"] == 8
    assert alone["finite"]
    assert set(alone["logs"][0]) == {
        "learning_rate", "epsilon", "epoch", "step", "num_input_tokens_seen"
    }  # fmt: skip
    assert {row["num_input_tokens_seen"] for row in alone["logs"]} == {0}
    for other in others:
        for name in ("steps", "logs", "callbacks", "messages", "result", "promise", "finite"):
            assert alone[name] == other[name], name
        assert repr(alone["random"]) == repr(other["random"])
        assert_only_weights_differ(alone["contents"], other["contents"], "checkpoint-8")


@pytest.mark.deep
def test_a_checkpoint_holds_these_files_and_no_other(runs):
    """Each is released weights, a function of released gradients, or public settings."""
    last = {Path(name).name for name in runs[40]["contents"] if name.startswith("checkpoint-8/")}
    assert last == {
        "README.md", "chat_template.jinja", "config.json", "model.safetensors", "optimizer.pt",
        "rng_state.pth", "scheduler.pt", "sordino.json", "tokenizer.json", "tokenizer_config.json",
        "trainer_state.json", "training_args.bin",
    }  # fmt: skip


# Few, and nobody.


@pytest.mark.deep
def test_a_wrong_gradient_is_refused_whoever_is_in_the_data(central, word_pairs, monkeypatch):
    loss = training.CentralTraining._loss
    monkeypatch.setattr(training.CentralTraining, "_loss", lambda *given: loss(*given) / 1.01)
    messages = {nothing_spent(central(people(word_pairs, n)), "clipped") for n in (0, 1, 40)}
    assert len(messages) == 1


def test_where_all_pairs_are_too_long_nobody_is_left(central, word_pairs):
    """Their number is private, so that it is no mistake that none is left."""
    args = {"max_length": 2, "overlong": "drop"}
    trainer = central(args=args)
    assert trainer._units == []
    assert trained(trainer).state.global_step == 8


def test_people_may_be_nobody(central, word_pairs, ledger_of):
    terms = privacy(unit="person", cap=2)
    pairs = replace(word_pairs(2), persons=("a", "b")).part([])
    assert isinstance(pairs, Pairs)
    trainer = central(pairs, terms=terms, ledger=ledger_of(unit="person"))
    assert trained(trainer).state.global_step == 8


def test_invented_units_are_the_same_always_and_hold_no_padding(central):
    tokens = central()._tokens
    one, other = (_invented_units(4, tokens) for _ in range(2))
    assert one == other
    assert len(one) == 4
    assert [len(unit) for unit in one] == [1, 1, 2, 1]
    assert max(len(pair.first) for unit in one for pair in unit) == tokens.max_length
    for pair in (pair for unit in one for pair in unit):
        assert pair.first[0] == pair.second[0]
        for ids, answer in zip((pair.first, pair.second), pair.answers, strict=True):
            assert 1 <= answer == len(ids) - 1 < tokens.max_length
            assert tokens.tokenizer.pad_token_id not in ids
            assert max(ids) < len(tokens.tokenizer)
