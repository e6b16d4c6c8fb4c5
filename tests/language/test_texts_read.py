"""What a start has read is known, and whoever has read the records is refused."""

import pytest

import sordino
from sordino.errors import PrivacyError

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from sordino.language import (
    CentralDPOConfig,
    CentralDPOTrainer,
    CentralPolicyConfig,
    CentralPolicyTrainer,
    CentralPrivacy,
    CentralRewardConfig,
    CentralRewardTrainer,
    SlotPrivacy,
)
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.references.texts_read import TextsRead, caveats_of_starts
from sordino.language.references.tiny import TinyModel
from sordino.language.studies.pipeline import build_reference
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL

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
def train(tmp_path):
    """Return a maker of each trainer that hides records or persons."""

    def make(kind, model, *, tokenizer=None, rows=None, **given):
        unit = "record" if kind in {"dpo", "reward"} else "person"
        neighbors = ADD_OR_REMOVE_ONE if unit == "record" else REPLACE_SPECIAL
        terms = {"unit": unit, "neighbors": neighbors}
        budget = sordino.Guarantee(9.0, delta=1e-5, trust="central", **terms)
        given |= {
            "ledger": sordino.Ledger.open(tmp_path / f"{kind}.db", data="d", budget=budget),
            "processing_class": tokenizer,
        }
        out = str(tmp_path / kind)
        rows = rows or rows_of()
        if kind == "policy":
            people = [{"person": str(at), "prompt": row["prompt"]} for at, row in enumerate(rows)]
            privacy = SlotPrivacy(4.0, 1e-5, neighbors=neighbors, slots=6, batches=2)
            config = CentralPolicyConfig(out, max_completion_length=4, reward_bound=1.0)
            given = {"reward_funcs": lambda prompts, **_: [0.0] * len(prompts)} | given
            return CentralPolicyTrainer(
                model, config, train_dataset=people, privacy=privacy, **given
            )
        privacy = CentralPrivacy(
            4.0, 1e-5, sampling_probability=0.5, steps=1, expected_batch=6, **terms
        )
        more = {"train_dataset": sordino.read_pairs(rows), "privacy": privacy, **given}
        if kind == "dpo":
            return CentralDPOTrainer(model, args=CentralDPOConfig(out), **more)
        return CentralRewardTrainer(model, CentralRewardConfig(out), **more)

    return make


@pytest.mark.parametrize("kind", ["dpo", "reward", "policy"])
def test_every_trainer_refuses_what_has_read_the_records(kind, train, bases):
    same, other = str(bases / "same"), str(bases / "other")
    rows = rows_of(asked="what is this, and why would anybody at all want to know")
    with pytest.raises(PrivacyError, match="read"):
        train(kind, same)
    with pytest.raises(PrivacyError, match="read"):
        train(kind, other, tokenizer=load_tokenizer(same))
    trainer = train(kind, other, rows=rows)
    assert "texts-declared" not in trainer._promise.guarantee.caveats


def test_a_reference_and_a_reward_that_have_read_the_records_are_refused(train, bases):
    same, other = str(bases / "same"), str(bases / "other")
    with pytest.raises(PrivacyError, match="has read texts of these"):
        train("dpo", other, reference=same, declare_unread=True)

    class Judge:
        reward = type("R", (), {"model": load_causal_model(same), "tokenizer": None})()

        def __call__(self, prompts, **_):
            return [0.0] * len(prompts)

    with pytest.raises(PrivacyError, match="cannot be told"):
        train("policy", other, reward_funcs=Judge())


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
        assert caveats_of_starts(read, [], declared=declared) == caveats


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
