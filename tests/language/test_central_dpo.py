"""DPO on raw pairs: whose loss it is, what is clipped, what it pays, and what it stays near."""

import math

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM

from sordino.errors import PrivacyError, UsageError
from sordino.language import (
    CentralDPOConfig,
    CentralDPOTrainer,
    CentralPrivacy,
    CentralRewardTrainer,
    PrivateDPOConfig,
    PrivateDPOTrainer,
    PrivateRewardTrainer,
)
from sordino.language.dp_sgd import training
from sordino.language.dp_sgd.clipping import differences
from sordino.language.dp_sgd.trainers import log_ratio_gaps
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CheckpointPromise
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL

TEMPERATURE = 0.3


def privacy(**changed):
    usual = {
        "epsilon": 4.0, "delta": 1e-5, "unit": "record", "neighbors": ADD_OR_REMOVE_ONE,
        "sampling_probability": 0.25, "steps": 4, "expected_batch": 10,
    }  # fmt: skip
    return CentralPrivacy(**{**usual, **changed})


@pytest.fixture
def make(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers."""

    def make(model=None, pairs=None, *, folder="run", terms=None, ledger=None, args=None, **more):
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
        usual = {
            "learning_rate": 3e-3,
            "temperature": TEMPERATURE,
        }
        return CentralDPOTrainer(
            str(tiny_llama) if model is None else model,
            args=CentralDPOConfig(str(tmp_path / folder), **{**usual, **quietly, **(args or {})}),
            train_dataset=word_pairs(40) if pairs is None else pairs,
            privacy=terms or privacy(),
            ledger=ledger or ledger_of(),
            **more,
        )

    return make


def trained(trainer, **how):
    with quiet():
        trainer.train(**how)
    return trainer


def log_probability(model, prompt, answer):
    """Return that of an answer, one token after the other."""
    ids = [*prompt, *answer]
    logs = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logs[at - 1, ids[at]] for at in range(len(prompt), len(ids)))


def moved(model):
    """Move a model a little, so that it is not its reference any more."""
    torch.manual_seed(3)
    with torch.no_grad():
        for one in model.parameters():
            if one.requires_grad:
                one.add_(0.05 * torch.randn_like(one))
    return model


@pytest.mark.deep
@pytest.mark.parametrize("which", ["tiny_llama", "tiny_gpt2"])
def test_the_loss_is_that_of_the_paper_token_by_token(make, word_pairs, request, which):
    folder, pairs = request.getfixturevalue(which), word_pairs(5, seed=2)
    trainer = make(str(folder), pairs)
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
@pytest.mark.parametrize("which", ["tiny_llama", "tiny_gpt2"])
def test_gradients_of_pairs_are_those_of_autograd(make, word_pairs, request, which, adapted):
    turned = {"fan_in_fan_out": which == "tiny_gpt2"}
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", **turned)
    folder = str(request.getfixturevalue(which))
    trainer = make(folder, word_pairs(6), peft_config=lora if adapted else None)
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


def test_at_the_start_the_policy_is_its_reference(make, tiny_llama):
    trainer = make()
    pairs = [pair for unit in trainer._units for pair in unit]
    with torch.no_grad():
        gaps = log_ratio_gaps(trainer.model.eval(), pairs, padding=0)
    np.testing.assert_allclose(gaps.numpy(), [pair.reference for pair in pairs], atol=1e-5)
    assert np.abs(gaps.numpy()).max() > 0.1
    other = moved(load_causal_model(str(tiny_llama)))
    elsewhere = make(reference=other, folder="other", declare_unread=True)
    pulled = [pair.reference for unit in elsewhere._units for pair in unit]
    assert np.abs(np.subtract(pulled, gaps.numpy())).max() > 0.05


@pytest.mark.deep
def test_with_next_to_no_noise_the_policy_learns_what_people_like(make, word_pairs):
    """Guessing 100 pairs is right in more than .65 with chance 1e-3; the coins are simulated."""
    terms = privacy(epsilon=500.0, sampling_probability=0.2, steps=60, expected_batch=60)
    trainer = trained(make(None, word_pairs(300, strength=4.0), terms=terms, simulate_seed=1))
    fresh = word_pairs(100, seed=9, strength=8.0)
    judged = make(None, fresh, folder="judged")
    pairs = [pair for unit in judged._units for pair in unit]
    with torch.no_grad():
        gaps = log_ratio_gaps(trainer.model.eval(), pairs, padding=0).numpy()
    grown = gaps - np.array([pair.reference for pair in pairs])
    right = (grown > 0) == np.array([pair.liked == 1 for pair in pairs])
    assert right.mean() > 0.65


@pytest.mark.deep
def test_a_person_is_one_contribution_and_a_checkpoint_says_what_was_paid(
    make, word_pairs, ledger_of, tmp_path
):
    from dataclasses import replace

    pairs = replace(word_pairs(9), persons=tuple("abacabbaa"))
    terms = privacy(unit="person", neighbors=REPLACE_SPECIAL, cap=3)
    ledger = ledger_of(unit="person", neighbors=REPLACE_SPECIAL)
    trainer = trained(make(None, pairs, terms=terms, ledger=ledger))
    assert [len(unit) for unit in trainer._units] == [3, 3, 1]
    trainer.save_model(str(tmp_path / "policy"))
    promise = CheckpointPromise.read(tmp_path / "policy")
    assert (promise.kind, promise.guarantee.unit) == ("policy", "person")
    assert promise.guarantee.epsilon == pytest.approx(ledger.total().epsilon)
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        torch.testing.assert_close(back(ids).logits, trainer.model.eval()(ids).logits)


def test_adapters_are_merged_and_start_as_the_reference(make, ledger_of, tmp_path):
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = trained(make(peft_config=lora))
    trainer.save_model(str(tmp_path / "policy"))
    load_tokenizer(tmp_path / "policy")
    assert CheckpointPromise.read(tmp_path / "policy").guarantee.epsilon <= 4.0


def test_a_run_goes_on_near_the_same_reference_only(make, ledger_of, tiny_llama):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 2}
    trained(make(ledger=ledger, args=saving, declare_unread=True))
    other = moved(load_causal_model(str(tiny_llama)))
    again = make(ledger=ledger, args=saving, reference=other, declare_unread=True)
    with pytest.raises(UsageError, match="another reference"):
        trained(again, resume_from_checkpoint=True)


def test_nothing_is_drawn_before_it_is_paid_for(make, ledger_of, monkeypatch):
    ledger, sizes = ledger_of(), []
    monkeypatch.setattr(
        training,
        "poisson_sample",
        lambda *_, **__: sizes.append(len(ledger.read(ledger.path).spends)) or [],
    )
    trained(make(ledger=ledger))
    assert sizes == [1, 1, 1, 1]


def test_no_loss_and_no_metric_is_logged(make):
    rows = trained(make()).state.log_history
    assert {name for row in rows for name in row} <= {"learning_rate", "epsilon", "epoch", "step"}


def test_the_trainers_of_randomized_answers_take_raw_pairs_with_central_privacy(
    tiny_llama, word_pairs, ledger_of, tmp_path
):
    given = {"train_dataset": word_pairs(8), "privacy": privacy(), "ledger": ledger_of()}
    assert isinstance(PrivateDPOTrainer(str(tiny_llama), **given), CentralDPOTrainer)
    assert isinstance(PrivateRewardTrainer(str(tiny_llama), **given), CentralRewardTrainer)
    with pytest.raises(UsageError, match="CentralPrivacy"):
        PrivateRewardTrainer(str(tiny_llama), **{**given, "privacy": "central"})
    with pytest.raises(PrivacyError, match="privacy=CentralPrivacy"):
        PrivateDPOTrainer(
            str(tiny_llama),
            args=PrivateDPOConfig(str(tmp_path)),
            train_dataset=given["train_dataset"],
        )


def test_a_delta_that_would_publish_somebody_is_refused():
    with pytest.raises(UsageError, match=r"delta must be below 0\.001"):
        privacy(delta=0.025)
    with pytest.raises(UsageError, match="below one over the 4,000 records"):
        privacy(delta=5e-4, sampling_probability=1e-3, expected_batch=4.0)
