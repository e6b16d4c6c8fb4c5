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
