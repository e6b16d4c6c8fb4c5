"""A sentence model that is made here: two tiny layers over a few words, the same every time."""

from __future__ import annotations

import socket

import pytest

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] a an the fugue is piece for voices what how bake rye bread first mix "
    "flour and water then wait i do not know yes no user assistant : ? . , ! long text word"
)
MAX_TOKENS = 24


@pytest.fixture
def no_network(monkeypatch):
    """Fail the test at any attempt to look up or to reach another machine."""

    def refuse(*arguments, **named):
        pytest.fail("the network was asked")

    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)


@pytest.fixture(scope="session")
def _saved(tmp_path_factory):
    pytest.importorskip("sentence_transformers", reason="the extra 'language' is not installed")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    parts, folder = tmp_path_factory.mktemp("parts"), tmp_path_factory.mktemp("models") / "tiny"
    number = {word: index for index, word in enumerate(WORDS.split())}
    special = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]"}
    tokenizer = Tokenizer(models.WordLevel(number, special["unk"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{kind}_token": word for kind, word in special.items()}
    ).save_pretrained(parts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        config = BertConfig(
            vocab_size=len(number), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=MAX_TOKENS, initializer_range=0.5,
        )  # fmt: skip
        BertModel(config).save_pretrained(parts)
    body = Transformer(str(parts), max_seq_length=MAX_TOKENS)
    pooled = Pooling(body.get_embedding_dimension(), pooling_mode="mean")
    SentenceTransformer(modules=[body, pooled], device="cpu").save(str(folder))
    logging.enable_progress_bar()
    return folder


@pytest.fixture
def tiny(_saved, tmp_path):
    """Return a fresh copy of the model's folder, which a test may damage."""
    import shutil

    return shutil.copytree(_saved, tmp_path / "tiny")


@pytest.fixture(scope="session")
def shared_model(_saved):
    """Return the folder that no test may damage."""
    return _saved


@pytest.fixture(scope="session")
def features(_saved):
    """Return features of the tiny model with default settings, on the processor."""
    from sordino.language import SentenceEmbeddings

    return SentenceEmbeddings(_saved, device="cpu")


GOOD, BAD = ("kind", "clear", "useful", "warm"), ("rude", "vague", "wrong", "cold")
PLAIN = ("the", "answer", "is", "about", "bread", "music", "water", "paper")


def true_reward(answer):
    """Return what the people of the tests like: good words, not bad ones."""
    words = answer.split()
    return sum((word in GOOD) - (word in BAD) for word in words) / 2


@pytest.fixture(scope="session")
def word_pairs():
    """Return a maker of raw pairs whose labels come from :func:`true_reward` (Bradley-Terry)."""
    import numpy as np

    import sordino

    def make(n, *, seed=0, strength=1.0, prompt="tell me about {}"):
        rng = np.random.default_rng(seed)
        records = []
        while len(records) < n:
            words = rng.choice([*GOOD, *BAD, *PLAIN, *PLAIN], size=(2, 5))
            first, second = (" ".join(row[: rng.integers(2, 6)]) for row in words)
            if first == second:
                continue
            gap = strength * (true_reward(first) - true_reward(second))
            likes = rng.random() < 1 / (1 + np.exp(-gap))
            records.append(
                {"prompt": prompt.format(rng.choice(PLAIN)), "first": first, "second": second,
                 "label": int(likes)}
            )  # fmt: skip
        return sordino.read_pairs(records)

    return make


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory, word_pairs):
    """Return folders of tiny causal models, each made when first asked for; none to be damaged."""
    pytest.importorskip("trl", reason="the extra 'language' is not installed")
    from sordino.language.references.texts import TextsRead
    from sordino.language.references.tiny import (
        TinyModel,
        both_answers,
        build_tiny,
        pretrain,
        save_tiny,
        train_tokenizer,
    )

    pairs = word_pairs(400, seed=9, prompt="tell me about {}.")  # not the prompts of the tests
    dialogues = list(both_answers(pairs))

    class Folders(dict):
        def __missing__(self, architecture):
            size = TinyModel(
                architecture=architecture, vocabulary=320, width=32, layers=2, heads=2, context=64
            )
            tokenizer = train_tokenizer([text for both in dialogues for text in both], size)
            model = build_tiny(size, tokenizer)
            pretrain(model, tokenizer, dialogues, steps=150, batch_size=16, learning_rate=5e-3)
            self[architecture] = tmp_path_factory.mktemp(architecture)
            for made in (model, tokenizer):
                TextsRead.of(pairs).mark(made)
            save_tiny(model, tokenizer, self[architecture])
            return self[architecture]

    return Folders()


@pytest.fixture(scope="session")
def tiny_llama(tiny_models):
    """Return the folder of a tiny Llama."""
    return tiny_models["llama"]


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_models):
    """Return the folder of a tiny GPT-2."""
    return tiny_models["gpt2"]


@pytest.fixture
def ledger_of(tmp_path):
    """Return a maker of ledgers for records or persons."""
    import sordino
    from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

    made = iter(range(100))

    def make(epsilon=1000.0, *, delta=1e-5, unit="record", neighbors=None):
        neighbors = neighbors or ADD_OR_REMOVE_ONE
        budget = sordino.Guarantee(
            epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central"
        )
        path = tmp_path / f"spend-{next(made)}.db"
        return sordino.Ledger.open(path, data="test", budget=budget)

    return make


@pytest.fixture
def central(tiny_llama, word_pairs, ledger_of, tmp_path):
    """Return a maker of trainers on raw pairs: of a reward, or of a policy by DPO."""
    from ._training import KINDS, QUIETLY, privacy

    usual = {"learning_rate": 3e-3, **QUIETLY}

    def make(pairs=None, *, kind="reward", folder="run", terms=None, ledger=None, model=None,
             args=None, **more):  # fmt: skip
        trainer, config = KINDS[kind]
        return trainer(
            str(tiny_llama) if model is None else model,
            args=config(str(tmp_path / folder), **{**usual, **(args or {})}),
            train_dataset=word_pairs(16) if pairs is None else pairs,
            privacy=terms or privacy(),
            ledger=ledger or ledger_of(),
            **{"declare_unread": model is not None, **more},
        )

    return make


@pytest.fixture
def private(word_pairs, open_ledger):
    """Return a maker of randomized pairs; each is a release of its own."""
    import sordino

    def make(n=64, *, epsilon=1.0, seed=0, coin=1):
        return sordino.privatize(
            word_pairs(n, seed=seed),
            sordino.RandomizedResponse(epsilon=epsilon),
            ledger=open_ledger(epsilon),
            simulate_seed=coin,
        )

    return make
