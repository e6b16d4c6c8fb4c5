"""What a start has read is known, and whoever has read the records is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import sordino
from sordino.errors import PrivacyError, UsageError

pytest.importorskip("trl", reason="the extra 'language' is not installed")
import torch
from safetensors.torch import load_file, save_file

from sordino.language import (
    CentralPolicyConfig,
    CentralPolicyTrainer,
    SentenceEmbeddings,
    SlotPrivacy,
)
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.loading import upstream
from sordino.language.references.texts import TextsRead
from sordino.language.references.tiny import TinyModel
from sordino.language.studies.pipeline import build_reference
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL
from sordino.rewards.release_checks import record_differences

from ._training import privacy

RARE = "zyzzogeton"
SIZE = TinyModel(vocabulary=320, width=16, layers=1, heads=2, context=64)


def rows_of(n=12, asked="what is this"):
    return [
        {"prompt": f"{asked} {at}", "first": f"yes {at}", "second": f"no {at}", "label": at % 2}
        for at in range(n)
    ]


OTHERS = rows_of(asked="what do others ask")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Return folders of models: one of the records, one of other texts."""
    folder = tmp_path_factory.mktemp("bases")
    for name, rows in (("same", rows_of()), ("other", OTHERS)):
        build_reference(sordino.read_pairs(rows), SIZE, folder / name, steps=1)
    return folder


@pytest.fixture
def train(central, ledger_of, tmp_path):
    """Return a maker of each trainer that hides records or persons."""

    def make(kind, model, *, tokenizer=None, rows=None, **given):
        rows, given = rows or rows_of(), {"processing_class": tokenizer, **given}
        if kind != "policy":
            terms = privacy(sampling_probability=0.5, steps=1, expected_batch=6)
            given = {"declare_unread": False, "folder": kind, "terms": terms, **given}
            return central(sordino.read_pairs(rows), kind=kind, model=model, **given)
        return CentralPolicyTrainer(
            model,
            CentralPolicyConfig(str(tmp_path / kind), max_completion_length=4, reward_bound=1.0),
            train_dataset=[{"person": str(at), **row} for at, row in enumerate(rows)],
            privacy=SlotPrivacy(4.0, 1e-5, neighbors=REPLACE_SPECIAL, slots=6, batches=2),
            ledger=ledger_of(unit="person", neighbors=REPLACE_SPECIAL),
            **{"reward_funcs": lambda prompts, **_: [0.0] * len(prompts), **given},
        )

    return make


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["dpo", "reward", "policy"])
def test_every_trainer_refuses_what_has_read_the_records(kind, train, bases):
    same, other = str(bases / "same"), str(bases / "other")
    rows = rows_of(asked="what is this, and why would anybody at all want to know")
    with pytest.raises(PrivacyError, match="read"):
        train(kind, same)
    with pytest.raises(PrivacyError, match="read"):
        train(kind, other, tokenizer=load_tokenizer(same))
    own = kind == "policy"  # a function of the user's own does not say what it was made from
    if own:
        with pytest.raises(PrivacyError, match="reward"):
            train(kind, other, rows=rows)
    trainer = train(kind, other, rows=rows, declare_unread=own)
    assert ("texts-declared" in trainer._promise.guarantee.caveats) == own


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["reward", "dpo"])
def test_adapters_that_training_adds_leave_it_known_what_the_base_has_read(kind, train, bases):
    from peft import LoraConfig

    lora = LoraConfig(r=2, target_modules="all-linear")
    rows = rows_of(asked="what is this, and why would anybody at all want to know")
    trainer = train(kind, str(bases / "other"), rows=rows, peft_config=lora)
    assert "texts-declared" not in trainer._promise.guarantee.caveats


def test_a_reference_and_a_reward_that_have_read_the_records_are_refused(train, bases):
    same, other = str(bases / "same"), str(bases / "other")
    with pytest.raises(PrivacyError, match="have read texts of these"):
        train("dpo", other, reference=same, declare_unread=True)

    class Judge:
        reward = type("R", (), {"model": load_causal_model(same), "tokenizer": None})()

        def __call__(self, prompts, **_):
            return [0.0] * len(prompts)

    with pytest.raises(PrivacyError, match="cannot be told"):
        train("policy", other, reward_funcs=Judge())


@pytest.mark.deep
def test_whoever_does_not_say_what_it_has_read_needs_a_declaration(train, bases):
    """A model that was trained further by others does not say it any more."""
    other = load_causal_model(bases / "other")
    other.base_model.get_input_embeddings().weight.data[0] += 1
    with pytest.raises(PrivacyError, match="--declare-unread"):
        train("dpo", other)
    trainer = train("dpo", other, declare_unread=True)
    assert "texts-declared" in trainer._promise.guarantee.caveats
    bare = load_tokenizer(bases / "other")
    bare.init_kwargs.pop("sordino_texts_read")
    with pytest.raises(PrivacyError, match="--declare-unread"):
        train("dpo", str(bases / "other"), tokenizer=bare)


@pytest.mark.parametrize("chat", [False, True])
def test_parts_and_other_orders_of_the_records_are_recognized(chat):
    rows = rows_of(40, asked="this prompt is long enough to be told from any other one")
    read = TextsRead.of(sordino.read_pairs(rows))
    some = [rows[at] for at in (31, 7, 20, 2, 13)]
    for row in some:
        row["first"], row["second"] = row["second"].upper(), row["first"].replace(" ", "\n")
        if chat:
            row["prompt"] = [{"role": "user", "content": row["prompt"]}]
    assert not read.digests.isdisjoint(TextsRead.of(sordino.read_pairs(some)).digests)
    assert read.unread(sordino.read_pairs([*some, *OTHERS])) == list(range(5, 5 + len(OTHERS)))
    for declared, caveats in ((False, ()), (True, ("texts-declared",))):
        assert TextsRead.on().caveats(read, declared=declared) == caveats


def test_a_rare_word_of_one_record_is_in_no_file_that_is_released(train, bases, tmp_path):
    rows = rows_of()
    rows[5]["second"] = f"{RARE} " * 5
    trainer = train("dpo", str(bases / "other"), rows=rows)
    trainer.train()
    trainer.save_model()
    files = [path for path in (tmp_path / "dpo").rglob("*") if path.is_file()]
    assert {"tokenizer.json", "config.json", "README.md"} <= {path.name for path in files}
    for path in files:
        assert RARE[:6].encode() not in path.read_bytes()
    build_reference(sordino.read_pairs(rows), SIZE, tmp_path / "base", steps=1)
    assert RARE.encode() in (tmp_path / "base/tokenizer.json").read_bytes()  # it would be found
    read = TextsRead.of(sordino.read_pairs(rows))
    kept = TextsRead.on(load_causal_model(tmp_path / "dpo"), load_tokenizer(tmp_path / "dpo"))
    assert kept == TextsRead.on(load_causal_model(bases / "other"))  # its own, and nothing else
    assert kept.digests.isdisjoint(read.digests)


def embeddings(base, folder, **given):
    """Return features of the body of a base, as a sentence model of the user's own."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    body = Transformer(str(base), max_seq_length=32)
    pooled = Pooling(body.get_embedding_dimension(), pooling_mode="mean")
    SentenceTransformer(modules=[body, pooled], device="cpu").save(str(folder))
    return SentenceEmbeddings(folder, device="cpu", **given)


@pytest.fixture
def fit(tmp_path):
    """Return a maker of rewards that hide every record."""
    terms = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE}

    def fit(features, rows=None, *, withhold=False):
        pairs = sordino.read_pairs(rows or rows_of())
        if withhold:
            return sordino.WithheldReward(pairs, features=features, ridge=9.0, **terms)
        budget = sordino.Guarantee(99.0, delta=1e-4, trust="central", **terms)
        ledger = sordino.Ledger.open(tmp_path / "fit.db", data="d", budget=budget)
        tilt = sordino.ObjectivePerturbation(
            4.0, delta=1e-5, bound=1.0, neighbors=ADD_OR_REMOVE_ONE
        )
        return sordino.fit_reward(pairs, mechanism=tilt, ledger=ledger, features=features)

    return fit


@pytest.mark.parametrize("withhold", [False, True])
def test_features_that_have_read_the_records_are_refused(fit, bases, tmp_path, withhold):
    long = rows_of(asked="what is this, and why would anybody at all want to know")
    known = embeddings(bases / "other", tmp_path / "known")
    made = fit(known, long, withhold=withhold)
    assert "texts-declared" not in (made.caveats if withhold else made.guarantee.caveats)
    for declared in (False, True):
        same = embeddings(bases / "same", tmp_path / f"s{declared}", declare_unread=declared)
        with pytest.raises(PrivacyError, match="have read texts" if declared else "read"):
            fit(same, withhold=withhold)


def test_features_of_which_nobody_knows_need_a_declaration(fit, shared_model):
    def ones(prompts, answers):
        return [[1.0] for _ in answers]

    def own(**given):
        return sordino.FunctionFeatures(ones, dimension=1, name="f", **given)

    def model(**given):
        return SentenceEmbeddings(shared_model, device="cpu", **given)

    for make in (own, model):
        with pytest.raises(PrivacyError, match="declare_unread=True"):
            fit(make())
        assert "texts-declared" in fit(make(declare_unread=True)).guarantee.caveats
    assert "texts-declared" not in fit(sordino.HashedText(8)).guarantee.caveats


def test_a_hidden_record_changes_no_row_of_another(shared_model):
    """Bit by bit, whatever batch_size says: a long text in a batch moved the others by 1e-7."""
    features = SentenceEmbeddings(shared_model, device="cpu", declare_unread=True)
    rows = rows_of(9)
    longer = [*rows, {**rows[0], "prompt": "the long text " * 9, "first": "what is a fugue ? " * 5}]
    alone, beside = (record_differences(sordino.read_pairs(r), features) for r in (rows, longer))
    assert np.array_equal(alone, beside[:9])


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}


def test_a_sentence_model_that_remembers_how_long_texts_are_hides_no_record(bases, fit, tmp_path):
    """Positions of every text of more than 8 tokens follow the longest one that was ever read."""
    embeddings(bases / "other", tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    torch.manual_seed(1)
    weights = {
        name: 0.5 * torch.randn_like(one) if one.dim() > 1 else one
        for name, one in load_file(file).items()
    }
    save_file(weights, file)
    for name, terms in (
        ("config", {"max_position_embeddings": 8, "rope_parameters": DYNAMIC}),
        ("sentence_bert_config", {"max_seq_length": 32}),
    ):
        file = tmp_path / f"model/{name}.json"
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | terms), encoding="utf-8")
    rows = [{**row, "first": "yes and no " * 3} for row in rows_of(9)]
    longer = [*rows, {**rows[0], "first": "what is this " * 20}]
    both = []
    for some in (rows, longer):
        pairs = sordino.read_pairs(some)
        features = SentenceEmbeddings(tmp_path / "model", device="cpu", declare_unread=True)
        both.append(pairs.differences(features)[:9])  # where texts are public, it may
        with pytest.raises(UsageError, match="max_length to at most 8"):
            record_differences(pairs, features)
    moved = np.linalg.norm(both[0] - both[1], axis=1)
    assert moved.min() > 1e-3  # every record of the others, each by itself
    for withhold in (False, True):
        with pytest.raises(UsageError, match="max_seq_length"):
            fit(features, rows, withhold=withhold)


def test_a_head_that_was_trained_elsewhere_is_not_covered_by_the_mark(train, bases):
    other = load_causal_model(bases / "other")
    other.lm_head.weight = torch.nn.Parameter(other.lm_head.weight.detach() + 1.0)
    assert TextsRead.on(load_causal_model(bases / "other")).complete
    assert not TextsRead.on(other).complete
    reward = load_reward_checkpoint(bases / "other")
    assert TextsRead.on(reward).complete  # a new head is all 0
    reward.score.weight.data += 1
    assert not TextsRead.on(reward).complete


def test_the_mark_outlives_what_people_do_with_folders(bases, tmp_path):
    """Renamed, saved again, tokenizer alone, merged adapters, fine-tuned by a script of trl."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    private = TextsRead.of(sordino.read_pairs(rows_of()))

    def told(*things):
        return TextsRead.on(*things).beside(private)

    model = AutoModelForCausalLM.from_pretrained(bases / "same")
    tokenizer = AutoTokenizer.from_pretrained(bases / "same")
    for one in (model, tokenizer):
        one.save_pretrained(tmp_path / "again")
    (tmp_path / "again").rename(tmp_path / "renamed")
    assert told(load_causal_model(tmp_path / "renamed"))["read"]
    assert told(load_tokenizer(tmp_path / "renamed"))["read"]
    with upstream():  # its own warnings
        adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
    merged = adapted.merge_and_unload()
    merged.base_model.get_input_embeddings().weight.data += 0.1  # trained on
    assert told(merged)["read"]
    bare = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "renamed/tokenizer.json"))
    assert told(bare) == {"known": False, "read": False}  # nobody knows: a declaration is asked
    tokenizer.add_tokens([RARE])
    assert not told(tokenizer)["known"]


def test_the_auditor_says_whether_a_model_has_read_records(bases):
    from sordino.auditing.training import _reading_finding

    def outcome(name, rows, tokenizer=None):
        model, own = load_causal_model(bases / name), load_tokenizer(bases / name)
        trainer = SimpleNamespace(_read=TextsRead.on(model), processing_class=tokenizer or own)
        return _reading_finding(trainer, sordino.read_pairs(rows)).outcome

    long = rows_of(asked="what is this, and why would anybody at all want to know")
    assert outcome("same", rows_of()) == "refutes"
    assert outcome("other", rows_of(), load_tokenizer(bases / "same")) == "refutes"
    assert outcome("other", long) == "clear"
    bare = load_tokenizer(bases / "other")
    bare.init_kwargs.pop("sordino_texts_read")
    assert outcome("other", long, bare) == "warning"


def test_a_judge_of_what_hides_records_needs_a_declaration():
    from sordino.cli.language import caveats_of_judge

    def caveats(unit, *, declared):
        promise = SimpleNamespace(guarantee=SimpleNamespace(unit=unit))
        return caveats_of_judge({"policy": promise, "reference": None}, declared=declared)

    assert caveats("label", declared=False) == ()
    for unit in ("record", "person"):
        with pytest.raises(PrivacyError, match="judge"):
            caveats(unit, declared=False)
        assert caveats(unit, declared=True) == ("texts-declared",)
