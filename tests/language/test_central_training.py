"""Training on raw pairs: what a step is, what it pays, and that nothing else comes out."""

import contextlib
import json
import math

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import torch
from peft import LoraConfig
from torch.nn.functional import softplus
from transformers import TrainerCallback

import sordino
from sordino.errors import BudgetExceeded, DataError, LedgerMismatch, PrivacyError, UsageError
from sordino.language.dp_sgd import training
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.dp_sgd.trainers import CentralRewardTrainer
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CheckpointPromise
from sordino.language.training.settings import CentralRewardConfig
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL

SAME = 1e-5  # gradients by hand are rounded otherwise
RECORD = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE}


def privacy(**changed):
    usual = {"sampling_probability": 0.25, "steps": 8, "expected_batch": 10, **RECORD}
    settings = {"epsilon": 4.0, "delta": 1e-5, **usual, **changed}
    return CentralPrivacy(settings.pop("epsilon"), settings.pop("delta"), **settings)


@pytest.fixture
def make(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers."""

    def make(pairs=None, *, folder="run", terms=None, ledger=None, model=None, args=None, **more):
        quietly = {"save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
        usual = {"learning_rate": 3e-3, **quietly}
        return CentralRewardTrainer(
            str(tiny_llama) if model is None else model,
            CentralRewardConfig(str(tmp_path / folder), **{**usual, **(args or {})}),
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


def awake(trainer):
    """Give weights that are 0 a value, so that the gradient of what is behind them is not 0."""
    torch.manual_seed(0)
    for one in trainer.model.parameters():
        if one.requires_grad and not one.any():
            torch.nn.init.normal_(one, std=0.2)
    return trainer


@pytest.fixture
def silent(monkeypatch):
    """Replace the noise by none, and keep its stated size."""
    sizes = []
    monkeypatch.setattr(
        training, "add_gradient_noise", lambda _, size, *, entropy: sizes.append(size)
    )
    return sizes


class Gradients(TrainerCallback):
    """Keeps what the optimizer is about to read."""

    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.seen.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
        )


class Killed(TrainerCallback):
    """Kills a run before a step, as a power cut would."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


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


def test_a_step_is_the_clipped_sum_over_a_public_number(make, word_pairs, silent):
    pairs, keep = word_pairs(12), Gradients()
    terms = privacy(sampling_probability=1.0, steps=1, epsilon=50.0, clip=0.7, expected_batch=17)
    trainer = awake(make(pairs, terms=terms, callbacks=[keep]))
    expected = by_hand(trainer, pairs, [[i] for i in range(12)], 0.7)
    trained(trainer)
    assert difference(keep.seen[0], expected, 17) < SAME
    assert silent == [pytest.approx(0.7 * terms.noise_multiplier)]


def test_dropout_is_off_and_layers_recompute(make, word_pairs, silent, monkeypatch):
    pairs, keep = word_pairs(6), Gradients()
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS", lora_dropout=0.5)
    terms = privacy(sampling_probability=1.0, steps=1, epsilon=50.0, clip=0.7, expected_batch=17)
    how = {"callbacks": [keep], "args": {"activation_checkpointing": True}, "peft_config": lora}
    trainer = awake(make(pairs, terms=terms, **how))
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


def test_all_pairs_of_a_person_are_one_contribution(make, word_pairs, ledger_of, silent):
    from dataclasses import replace

    pairs, keep = word_pairs(9), Gradients()
    pairs = replace(pairs, persons=tuple("abacabbaa"))
    terms = privacy(
        unit="person", neighbors=REPLACE_SPECIAL, cap=3, sampling_probability=1.0, steps=1,
        epsilon=50.0, clip=0.5,
    )  # fmt: skip
    ledger = ledger_of(unit="person", neighbors=REPLACE_SPECIAL)
    trainer = awake(make(pairs, terms=terms, ledger=ledger, callbacks=[keep]))
    expected = by_hand(trainer, pairs, [[0, 2, 4], [1, 5, 6], [3]], 0.5)
    trained(trainer)
    assert difference(keep.seen[0], expected, 10) < SAME


def test_an_empty_batch_is_noise_alone(make, word_pairs, monkeypatch):
    keep = Gradients()
    monkeypatch.setattr(training, "poisson_sample", lambda *_, **__: [])
    trainer = make(word_pairs(2), callbacks=[keep], simulate_seed=1)
    trained(trainer)
    size = privacy().noise_multiplier / 10
    for gradients in keep.seen:
        values = torch.cat([one.flatten() for one in gradients.values()]).double()
        assert len(values) > 10_000
        # chance of a false alarm below 1e-6: five standard errors, eight times, seeded
        assert abs(values.mean()) < 5 * size / math.sqrt(len(values))
        assert abs(values.std() / size - 1) < 5 / math.sqrt(2 * len(values))
    assert len(keep.seen) == 8


def test_noise_is_added_once_to_every_step(make, silent):
    """Some steps have many parts, and some none."""
    trained(make())
    assert len(silent) == 8


def test_a_step_that_fails_leaves_no_sum_without_noise(make, monkeypatch):
    """Whoever catches the error holds the model."""
    trainer = make()

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_add_noise", fails)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert all(one.grad is None for one in trainer.model.parameters())


@pytest.mark.deep
@pytest.mark.parametrize("killed", [1, 4, 7])
def test_a_killed_run_pays_again_and_never_counts_less_than_was_drawn(
    make, ledger_of, killed, silent
):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 3}
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, args=saving, callbacks=[Killed(killed)]))
    assert len(silent) == killed
    assert steps_of(ledger) >= killed
    again = make(ledger=ledger, args=saving)
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
    promise = CheckpointPromise.read(again_folder(again))
    if killed >= 3:
        assert promise.guarantee.epsilon == pytest.approx(total, rel=1e-6)
        assert len(promise.release_ids) == 4
    assert promise.guarantee.epsilon > 4.0 * (killed >= 3)
    assert again.text_reward().guarantee == again._promise.guarantee


def steps_of(ledger):
    return sum(json.loads(row.parameters)["steps"] * row.count for row in ledger.spends)


def again_folder(trainer):
    from pathlib import Path

    return Path(trainer.args.output_dir) / "checkpoint-8"


def test_the_entry_comes_before_anybody_is_drawn(make, ledger_of, monkeypatch):
    ledger, order = ledger_of(), []
    sample = training.poisson_sample
    monkeypatch.setattr(
        training,
        "poisson_sample",
        lambda *a, **k: order.append(steps_of(sordino.Ledger.read(ledger.path))) or sample(*a, **k),
    )
    trained(make(ledger=ledger, args={"save_strategy": "steps", "save_steps": 3}))
    assert order == [3, 3, 3, 6, 6, 6, 8, 8]


def test_without_budget_nothing_is_drawn(make, ledger_of, silent):
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        trained(make(ledger=ledger_of(3.9)))
    saving = {"save_strategy": "steps", "save_steps": 3}
    with pytest.raises(BudgetExceeded):  # the first parts alone would fit
        trained(make(ledger=ledger_of(3.9), args=saving))
    assert silent == []
    ledger = ledger_of(4.0)
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, args=saving, callbacks=[Killed(5)]))
    drawn, before = len(silent), ledger.head
    with pytest.raises(BudgetExceeded):
        trained(make(ledger=ledger, args=saving), resume_from_checkpoint=True)
    assert (len(silent), ledger.head) == (drawn, before)


@pytest.mark.deep
def test_parts_fit_the_budget_of_the_whole(make, ledger_of):
    ledger = ledger_of(4.0)
    trainer = trained(make(ledger=ledger, args={"save_strategy": "steps", "save_steps": 1}))
    assert len(ledger.spends) == 8
    assert 3.99 < trainer._promise.guarantee.epsilon <= 4.0


class Crash(Exception):
    """What a power cut is here."""


@pytest.mark.deep
def test_fifty_kills_at_random_points_never_count_less_than_was_drawn(make, ledger_of, monkeypatch):
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
        trainer = make(ledger=ledger, args=saving, folder=f"run-{crash['kills'] // 10}")
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


@pytest.mark.deep
def test_training_again_adds_up(make, ledger_of):
    """The weights go on from where they are, and so does what they promise."""
    ledger = ledger_of()
    trainer = trained(trained(make(ledger=ledger)))
    assert trainer._promise.guarantee.epsilon == pytest.approx(ledger.total().epsilon)
    assert trainer._promise.guarantee.epsilon > 4.5
    assert len(trainer._promise.release_ids) == 2


@pytest.mark.deep
def test_what_a_model_starts_from_counts(make, ledger_of, tmp_path):
    ledger = ledger_of()
    first = trained(make(ledger=ledger))
    first.save_model(str(tmp_path / "first"))
    second = trained(make(ledger=ledger, model=str(tmp_path / "first"), folder="second"))
    assert 7.9 < second._promise.guarantee.epsilon <= 8.0
    assert set(second._promise.release_ids) == {row.release_id for row in ledger.spends}


def test_a_finished_run_is_not_gone_on_with(make, ledger_of):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 4}
    trained(make(ledger=ledger, args=saving))
    with pytest.raises(UsageError, match="took all"):
        trained(make(ledger=ledger, args=saving), resume_from_checkpoint=True)
    assert steps_of(ledger) == 8


def test_the_ledger_certifies_the_reward(make, ledger_of):
    from sordino.certificates import certify

    ledger = ledger_of()
    reward = trained(make(ledger=ledger)).text_reward()
    certificate = certify(reward, ledger)
    assert certificate.guarantee.epsilon <= 4.0
    assert set(certificate.guarantee.caveats) == {"person-group", "real-arithmetic", "timing"}


def test_steps_outside_of_a_run_are_paid_for_too(make, ledger_of, silent):
    ledger = ledger_of()
    trainer = make(ledger=ledger)
    for _ in range(9):
        trainer.training_step(trainer.model, {})
    assert len(silent) == 9
    assert steps_of(ledger) == 16


def test_an_undecided_pair_pulls_both_ways(word_pairs):
    from dataclasses import replace

    from sordino.language.dp_sgd.training import units_of
    from sordino.language.models.tokens import DialogueTokens

    class Tokens:
        overlong = "refuse"

        def pairs(self, pairs, **how):
            return DialogueTokens.pairs(self, pairs, **how)

        def _pair(self, prompt, first, second, row):
            from sordino.language.models.tokens import Dialogue

            return Dialogue([1], [2]), Dialogue([1], [3])

    pairs = word_pairs(3)
    pairs = replace(pairs, labels=np.array([0, 1, 2]))
    found = units_of(pairs, Tokens(), privacy())
    assert [unit[0].liked for unit in found] == [0.0, 1.0, 0.5]


def test_another_ledger_and_other_settings_are_refused(make, ledger_of):
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 4}
    trained(make(ledger=ledger, args=saving))
    with pytest.raises(LedgerMismatch, match="did not pay"):
        trained(make(ledger=ledger_of(), args=saving), resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="another privacy"):
        trained(make(ledger=ledger, args=saving, terms=privacy(clip=2.0)), resume_from_checkpoint=True)  # fmt: skip  # noqa: E501
    for wrong in ({"unit": "person"}, {"neighbors": REPLACE_SPECIAL}):
        with pytest.raises(PrivacyError, match="counts unit"):
            make(ledger=ledger_of(**wrong))


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.deep
def test_nothing_but_weights_depends_on_the_labels(
    tiny_llama, make, word_pairs, ledger_of, tmp_path, monkeypatch
):
    """The same seed and other labels: logs and files without weights are the same."""
    from dataclasses import replace

    monkeypatch.setattr("sordino.language.dp_sgd.privacy.new_release_id", lambda: "r")
    pairs = word_pairs(40)
    files, logs = [], []
    for labels in (pairs.labels, 1 - pairs.labels):
        monkeypatch.setattr(
            "sordino._random.new_release_id", iter(f"{i:016x}" for i in range(99)).__next__
        )
        saving = {"save_strategy": "steps", "save_steps": 4}
        trainer = make(replace(pairs, labels=labels), args=saving, simulate_seed=3)
        trained(trainer)
        logs.append(trainer.state.log_history)
        files.append(files_of(tmp_path / "run"))
        (tmp_path / "run").rename(tmp_path / f"run-{len(files)}")
    assert logs[0] == logs[1]
    assert set(logs[0][0]) == {"learning_rate", "epsilon", "epoch", "step"}
    one, other = files
    assert set(one) == set(other)
    differ = {name.split("/")[-1] for name in one if one[name] != other[name]}
    assert differ <= {"model.safetensors", "optimizer.pt", "sordino.json", "config.json"}
    assert "model.safetensors" in differ
    for name in ("sordino.json", "config.json"):  # they hold a digest of the weights
        both = [json.loads(found[f"checkpoint-8/{name}"]) for found in files]
        for found in both:
            found.get("sordino_texts_read", {}).update(made="", heads=[])
            sources = found.get("sources") or found["sordino_promise"]["sources"]
            sources[0]["artifact"] = ""
        assert both[0] == both[1]


@pytest.mark.deep
def test_a_resumed_simulation_ends_where_the_whole_one_does(make, ledger_of):
    saving = {"save_strategy": "steps", "save_steps": 3}
    whole = trained(make(args=saving, simulate_seed=5, folder="whole"))
    ledger = ledger_of()
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, args=saving, simulate_seed=5, callbacks=[Killed(5)]))
    again = trained(make(ledger=ledger, args=saving, simulate_seed=5), resume_from_checkpoint=True)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert again._promise.guarantee.simulated


@pytest.mark.deep
def test_two_runs_without_a_seed_differ(make):
    one, other = (trained(make(folder=name)).model.score.weight for name in ("a", "b"))
    assert not torch.equal(one, other)


@pytest.mark.deep
@pytest.mark.parametrize("adapters", [False, True])
def test_adapters_and_recomputed_layers_learn(make, adapters):
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS", lora_dropout=0.5)
    trainer = make(
        args={"activation_checkpointing": True}, peft_config=lora if adapters else None
    )  # fmt: skip
    before = {n: p.clone() for n, p in trainer.model.named_parameters()}
    trained(trainer)
    moved = {n for n, p in trainer.model.named_parameters() if not torch.equal(before[n], p)}
    assert moved == {n for n, p in trainer.model.named_parameters() if p.requires_grad}
    assert any("lora" in name for name in moved) == adapters


@pytest.mark.parametrize(
    "wrong",
    [
        {"bf16": True}, {"fp16": True}, {"max_grad_norm": 1.0}, {"gradient_accumulation_steps": 2},
        {"per_device_train_batch_size": 4},
        {"save_strategy": "epoch"}, {"auto_find_batch_size": True}, {"eval_on_start": True},
        {"load_best_model_at_end": True}, {"max_steps": 7}, {"torch_compile": True},
    ],
)  # fmt: skip
def test_settings_that_break_the_promise_are_refused(make, wrong):
    with pytest.raises(UsageError, match=r"Nothing was trained|must be one of"):
        make(args=wrong)


@pytest.mark.deep
def test_other_arithmetic_is_refused_before_anything_is_spent(make, ledger_of):
    ledger = ledger_of()
    trainer = make(ledger=ledger)
    trainer.model.score.to(torch.bfloat16)
    with pytest.raises(UsageError, match="32-bit"):
        trained(trainer)
    trainer = make(ledger=ledger)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(UsageError, match="TF32"):
            trained(trainer)
    finally:
        torch.set_float32_matmul_precision(before)
    trainer = make(ledger=ledger)
    trainer.args._n_gpu = 2
    with pytest.raises(UsageError, match="one device"):
        training.refuse_other_arithmetic(trainer)
    assert not ledger.spends


def test_wrong_gradients_are_refused_before_anything_is_spent(make, ledger_of, monkeypatch):
    ledger, loss = ledger_of(), training.CentralTraining._loss
    monkeypatch.setattr(training.CentralTraining, "_loss", lambda *given: loss(*given) / 1.01)
    with pytest.raises(UsageError, match="nothing was spent"):
        trained(make(ledger=ledger))
    assert not ledger.spends


def test_measuring_and_pairs_of_another_kind_are_refused(make, word_pairs, open_ledger):
    with pytest.raises(PrivacyError, match="metric"):
        make().evaluate()
    private = sordino.privatize(
        word_pairs(8), sordino.RandomizedResponse(1.0), ledger=open_ledger(1.0), simulate_seed=1
    )
    with pytest.raises(UsageError, match="PrivateRewardTrainer"):
        make(private)
    with pytest.raises(UsageError, match="raw pairs"):
        make([1])


def test_no_message_names_a_record(make, word_pairs):
    from dataclasses import replace

    pairs = word_pairs(4)
    pairs = replace(pairs, second=(*pairs.second[:3], "secret " * 100))
    keys = sordino.read_pairs([
        {"prompt": p, "first": a, "second": b, "label": 1}
        for p, a, b in zip(pairs.prompts, pairs.first, pairs.second, strict=True)
    ])  # fmt: skip
    with pytest.raises(DataError) as caught:
        make(keys)
    assert "secret" not in str(caught.value)
    assert not any(char.isdigit() for char in str(caught.value))


@pytest.mark.deep
def test_it_learns_what_people_like(make, word_pairs):
    from tests.language.conftest import true_reward

    terms = privacy(epsilon=200.0, sampling_probability=0.1, steps=120, expected_batch=80)
    args = {"learning_rate": 1e-2, "logging_steps": 60}
    trainer = trained(make(word_pairs(800, strength=3.0), terms=terms, args=args, simulate_seed=1))
    held = word_pairs(100, seed=5)
    scores = trainer.text_reward().score(held.prompts, held.first)
    truth = [true_reward(text) for text in held.first]
    correlation = np.corrcoef(scores, truth)[0, 1]
    assert correlation > 0.8, correlation


@pytest.mark.deep
def test_gpt2_with_adapters_goes_on_where_it_was_killed(make, tiny_gpt2, ledger_of):
    lora = LoraConfig(
        r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True, task_type="SEQ_CLS"
    )
    ledger, saving = ledger_of(), {"save_strategy": "steps", "save_steps": 3}
    how = {"model": str(tiny_gpt2), "args": saving, "peft_config": lora, "simulate_seed": 2}
    whole = trained(make(folder="whole", **how))
    with pytest.raises(KeyboardInterrupt):
        trained(make(ledger=ledger, callbacks=[Killed(4)], **how))
    again = trained(make(ledger=ledger, **how), resume_from_checkpoint=True)
    assert again.state.global_step == 8
    both = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)
    assert steps_of(ledger) == 11
