"""Rows of sentence embeddings: bounded, each by itself, the same again, and of nothing else."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, UsageError
from sordino.language import SentenceEmbeddings

PROMPTS = [
    "What is a fugue?",
    "how do i bake rye bread ?",
    "",
    "the long text " * 40,
    "\ud800é日本🙂",
]
ANSWERS = ["A piece for voices.", "first mix flour and water , then wait .", "no", "yes", ""]
SHAPE = 28  # signals of the shape of an answer
FLOAT_NOISE = 1e-5  # 32-bit arithmetic on rows of norm at most 1, some hundred operations deep


@pytest.fixture
def spied(shared_model, monkeypatch):
    """Return features and the texts, and the settings, of every call of their model."""
    features = SentenceEmbeddings(shared_model, device="cpu")
    calls, encode = [], features._model.encode

    def spy(texts, **named):
        calls.append(SimpleNamespace(texts=texts, **named))
        return encode(texts, **named | {"show_progress_bar": False})

    monkeypatch.setattr(features._model, "encode", spy)
    return features, calls


@pytest.mark.parametrize("bound", [1e-3, 1.0, 50.0, 1e100])
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_no_row_is_longer_than_the_bound(shared_model, bound, share):
    features = SentenceEmbeddings(
        shared_model, device="cpu", feature_bound=bound, embedding_norm=share
    )
    rows = features.transform(PROMPTS, ANSWERS)
    assert rows.shape == (len(PROMPTS), features.dimension)
    norms = np.linalg.norm(rows / bound, axis=1)
    assert (norms <= 1).all()
    assert norms.min() > 0
    if share == 1:
        assert norms.max() > 1 - 1e-9, "with so large a share some rows are clipped"


def test_a_row_is_embedding_and_cosine(shared_model):
    """Against the library itself, used as its own documents say."""
    from sentence_transformers import SentenceTransformer

    features = SentenceEmbeddings(
        shared_model, device="cpu", with_shape=False, embedding_norm=1.0, feature_bound=3.0
    )
    rows = features.transform(PROMPTS[:2], ANSWERS[:2]) * np.sqrt(2) / 3
    peer = SentenceTransformer(str(shared_model), device="cpu")
    asked, said = (peer.encode(t, normalize_embeddings=True) for t in (PROMPTS[:2], ANSWERS[:2]))
    assert features.dimension == rows.shape[1] == said.shape[1] + 1
    np.testing.assert_allclose(rows[:, :-1], said, atol=FLOAT_NOISE)
    np.testing.assert_allclose(rows[:, -1], (asked * said).sum(axis=1), atol=FLOAT_NOISE)


def test_the_shape_is_that_of_hashed_text(shared_model):
    """As long as nothing is clipped: the embedding is small here."""
    features = SentenceEmbeddings(shared_model, device="cpu", embedding_norm=0.1, feature_bound=2.0)
    text = sordino.HashedText(512, feature_bound=2.0, word_norm=0.0)
    shape = text.transform(PROMPTS[:2], ANSWERS[:2]).toarray()[:, :SHAPE]
    rows = features.transform(PROMPTS[:2], ANSWERS[:2])
    np.testing.assert_allclose(rows[:, :SHAPE], shape, rtol=1e-9)
    assert shape.any(axis=1).all()


def test_a_row_depends_on_its_own_texts_only(features):
    together = features.transform(PROMPTS, ANSWERS)
    order = [3, 0, 4, 2, 1]
    moved = features.transform([PROMPTS[i] for i in order], [ANSWERS[i] for i in order])
    np.testing.assert_allclose(moved, together[order], atol=FLOAT_NOISE)
    for row, one in zip(together, zip(PROMPTS, ANSWERS, strict=True), strict=True):
        alone = features.transform([one[0]], [one[1]])
        np.testing.assert_allclose(alone[0], row, atol=FLOAT_NOISE)
    assert np.linalg.norm(together[0] - together[1]) > 0.1, "different texts have different rows"


def test_one_text_at_a_time_gives_every_bit_again(shared_model):
    features = SentenceEmbeddings(shared_model, device="cpu", batch_size=1)
    together = features.transform(PROMPTS, ANSWERS)
    for row, prompt, answer in zip(together, PROMPTS, ANSWERS, strict=True):
        np.testing.assert_array_equal(features.transform([prompt], [answer])[0], row)


def test_loaded_again_it_is_the_same_map(features, tiny):
    again = SentenceEmbeddings(tiny, device="cpu")
    assert again == features
    assert again.to_dict() == features.to_dict()
    np.testing.assert_array_equal(
        again.transform(PROMPTS, ANSWERS), features.transform(PROMPTS, ANSWERS)
    )


def test_chat_messages_are_their_text(features):
    turns = [{"role": "user", "content": "What is a fugue?"}]
    talk = [*turns, {"role": "assistant", "content": "A piece."}]
    rows = features.transform([turns, talk], [turns, talk])
    flat = ["What is a fugue?", "user: What is a fugue?\n\nassistant: A piece."]
    np.testing.assert_array_equal(rows, features.transform(flat, flat))


def test_a_blank_text_has_no_embedding(spied):
    features, calls = spied
    rows = features.transform(["What is a fugue?", " \n", ""], ["", "yes", "\t"])
    assert not rows[[0, 2], SHAPE:].any()
    assert rows[1, SHAPE:-1].any()
    assert rows[1, -1] == 0, "nothing is near to a blank prompt"
    assert [call.texts for call in calls] == [["What is a fugue?", "yes"]]
    assert features.transform([], []).shape == (0, features.dimension)
    assert features.transform([""], [" "]).shape == (1, features.dimension)
    assert len(calls) == 1


def test_the_end_of_a_long_text_is_not_read(spied):
    """The tiny model takes 24 tokens in; no model is given more than 65,536 characters."""
    features, calls = spied
    start = "the long text " * 10
    rows = features.transform([""] * 3, [start + "yes", start + "no !", start + "word" * 10**5])
    embedding = rows[:, SHAPE:]
    np.testing.assert_allclose(embedding[1:], embedding[[0, 0]], atol=FLOAT_NOISE)
    assert max(len(text) for text in calls[-1].texts) == 1 << 16


def test_equal_texts_are_embedded_once(spied):
    features, calls = spied
    rows = features.transform(["what"] * 500, ["yes", "no"] * 250)
    assert calls[0].texts == ["what", "yes", "no"]
    np.testing.assert_array_equal(rows[0], rows[498])


def test_many_pairs_go_to_the_model_in_batches(spied):
    features, calls = spied
    answers = [f"{'yes ' * (i % 9)} {i}" for i in range(2000)]
    rows = features.transform(["what"] * 2000, answers)
    assert rows.shape == (2000, features.dimension)
    assert len(calls) == 1, "one call, which works through batches"
    assert calls[0].batch_size == 32


@pytest.mark.parametrize(
    ("watched", "n", "shown"), [(True, 1500, True), (True, 9, False), (False, 1500, False)]
)
def test_a_bar_is_for_people_who_wait(spied, monkeypatch, watched, n, shown):
    features, calls = spied
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched, raising=False)
    features.transform([""] * n, [str(i) for i in range(n)])
    assert calls[0].show_progress_bar is shown


def test_nothing_is_written_to_the_terminal(tiny, capfd):
    features = SentenceEmbeddings(tiny, device="cpu")
    features.transform([""] * 1500, [str(i) for i in range(1500)])
    assert capfd.readouterr() == ("", "")


def test_the_model_is_used_and_not_trained(features):
    assert not features._model.training
    rows = features.transform(["what"], ["yes"])
    assert rows.dtype == np.float64
    assert {str(weight.dtype) for weight in features._model.parameters()} == {"torch.float32"}


def test_a_model_stored_in_halves_is_computed_in_full(tiny):
    from safetensors.torch import load_file, save_file

    file = tiny / "model.safetensors"
    save_file(
        {name: weight.bfloat16() for name, weight in load_file(file).items()},
        file,
        metadata={"format": "pt"},
    )
    config = tiny / "config.json"
    config.write_text(config.read_text().replace('"float32"', '"bfloat16"'))
    assert '"bfloat16"' in config.read_text()
    features = SentenceEmbeddings(tiny, device="cpu")
    assert {str(weight.dtype) for weight in features._model.parameters()} == {"torch.float32"}


def test_weights_that_are_missing_are_the_same_each_time(tiny):
    import torch
    from safetensors.torch import load_file, save_file

    file = tiny / "model.safetensors"
    weights = load_file(file)
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    rows = []
    for _ in range(2):
        torch.rand(3)  # the user's own randomness moves on, and loading a model does not move it
        before = torch.random.get_rng_state()
        rows.append(SentenceEmbeddings(tiny, device="cpu").transform(PROMPTS, ANSWERS))
        assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize(
    ("prompts", "answers", "message"),
    [
        (["what"], ["yes", "no"], "1 prompts, 2 answers"),
        ("what", "yes", "one text"),
        (["what", "how"], ["yes", 7], r"answers\[1\]"),
        ([None], ["secret"], r"prompts\[0\]"),
    ],
)
def test_what_is_no_text_is_refused_by_its_index(features, prompts, answers, message):
    with pytest.raises(DataError, match=message) as caught:
        features.transform(prompts, answers)
    assert "secret" not in str(caught.value)


def test_a_row_that_is_not_finite_is_refused_by_its_index(shared_model, monkeypatch):
    features = SentenceEmbeddings(shared_model, device="cpu")
    encode = features._model.encode

    def broken(texts, **named):
        rows = encode(texts, **named)
        rows[texts.index("secret")] = np.nan
        return rows

    monkeypatch.setattr(features._model, "encode", broken)
    with pytest.raises(DataError, match="row 1 holds a NaN") as caught:
        features.transform(["what", "how"], ["yes", "secret"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    [
        {"feature_bound": 0.0},
        {"feature_bound": float("inf")},
        {"feature_bound": 1e200},
        {"embedding_norm": 0.0},
        {"embedding_norm": 1.5},
        {"embedding_norm": "half"},
        {"with_shape": "yes"},
        {"with_shape": None},
        {"batch_size": 0},
        {"name": 7},
        {"device": "a-toaster"},
    ],
)
def test_a_setting_out_of_range_is_refused(shared_model, setting):
    with pytest.raises(UsageError, match=f"{next(iter(setting))}"):
        SentenceEmbeddings(shared_model, **{"device": "cpu"} | setting)


def test_it_is_a_feature_map(features):
    from sordino.preferences.features import Features

    assert isinstance(features, Features)
    assert features.to_dict()["dimension"] == features.dimension == SHAPE + 16 + 1


@pytest.mark.gpu
def test_an_accelerator_gives_the_same_rows(shared_model, features):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no accelerator")
    there = SentenceEmbeddings(shared_model)
    assert there._model.device.type == "cuda"
    np.testing.assert_allclose(
        there.transform(PROMPTS, ANSWERS), features.transform(PROMPTS, ANSWERS), atol=1e-4
    )
