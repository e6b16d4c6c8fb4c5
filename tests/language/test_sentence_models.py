"""Sentence models: from a folder and nowhere else, rows of bounded norm, rewards fitted on them."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, FileSystemError, MissingExtra, UsageError
from sordino.language import SentenceEmbeddings
from sordino.language.embeddings import _sentence_model_folder, model_digest
from sordino.preferences.features import differences, features_from_dict
from sordino.rewards.model import RewardModel

HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize("path", ["no-such-folder", HUB_NAME, "", "a\0b", "https://example.org/m"])
def test_a_folder_that_is_not_there_is_refused_without_asking_anybody(path, no_network):
    with pytest.raises(FileSystemError, match="nothing is ever fetched") as caught:
        SentenceEmbeddings(path)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("path", [None, 7, b"folder"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(UsageError, match="path must be"):
        SentenceEmbeddings(path)


def test_importing_loads_no_deep_learning():
    program = (
        "import sys, sordino\n"
        "[getattr(sordino, name) for name in sordino.__all__]\n"
        "import sordino.language\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_missing_extra_explains_itself(shared_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra) as caught:
        SentenceEmbeddings(shared_model)
    assert str(caught.value).endswith("Install it with: pip install 'sordino[language]'")
    assert caught.value.exit_code == 2


def test_a_model_is_loaded_and_used_offline(tiny, no_network, monkeypatch):
    """Although the settings of this process allow the network."""
    from huggingface_hub import constants
    from transformers.utils import logging

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    bars = logging.is_progress_bar_enabled()
    features = SentenceEmbeddings(tiny, device="cpu")
    assert features.transform(["what"], ["yes"]).any()
    assert constants.HF_HUB_OFFLINE is False, "as it was before"
    assert logging.is_progress_bar_enabled() is bars


def test_a_part_that_is_missing_is_not_fetched(tiny, no_network):
    (tiny / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match="cannot be loaded"):
        SentenceEmbeddings(tiny, device="cpu")


@pytest.mark.parametrize("content", [None, "", "[]", "{}", "7", '[{"path": ""}]', "\xff"])
def test_a_folder_without_a_sentence_model_is_refused(tiny, content):
    (tiny / "modules.json").unlink()
    if content is not None:
        (tiny / "modules.json").write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match="holds no sentence model"):
        SentenceEmbeddings(tiny)


def test_code_that_comes_with_a_model_is_not_run(tiny, tmp_path):
    """Neither a part of its own nor a body of its own."""
    mark = tmp_path / "it-ran"
    code = f"open({str(mark)!r}, 'w').close()\nclass Own: pass\n"
    (tiny / "own.py").write_text(code)
    modules = json.loads((tiny / "modules.json").read_text())
    changed = [modules[0] | {"type": "own.Own"}, *modules[1:]]
    (tiny / "modules.json").write_text(json.dumps(changed))
    with pytest.raises(UsageError, match="code of its own"):
        SentenceEmbeddings(tiny, device="cpu")

    (tiny / "modules.json").write_text(json.dumps(modules))
    config = json.loads((tiny / "config.json").read_text())
    config |= {
        "model_type": "own",
        "architectures": ["Own"],
        "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"},
    }
    (tiny / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="cannot be loaded"):
        SentenceEmbeddings(tiny, device="cpu")
    assert not mark.exists()


def test_pickled_weights_are_refused(tiny):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(tiny / "model.safetensors"), tiny / "pytorch_model.bin")
    SentenceEmbeddings(tiny, device="cpu")  # the others are there, and are the ones that are read
    (tiny / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="are pickled, which can run code"):
        SentenceEmbeddings(tiny, device="cpu")


def test_an_adapter_is_refused(tiny):
    (tiny / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    with pytest.raises(UsageError, match="adapter of another model"):
        SentenceEmbeddings(tiny, device="cpu")


def test_copies_of_one_model_agree(tiny, shared_model):
    before = model_digest(_sentence_model_folder(shared_model))
    (tiny / "README.md").write_text("Another description.")
    (tiny / ".cache").mkdir()
    (tiny / ".cache" / "lock.json").write_text("{}")
    (tiny / "onnx").mkdir()
    (tiny / "onnx" / "model.json").write_text("{}")
    (tiny / "tf_model.h5").write_bytes(b"weights of another library")
    assert model_digest(_sentence_model_folder(tiny)) == before


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_changed_bit_changes_the_digest(tiny, name):
    before = model_digest(tiny)
    content = bytearray((tiny / name).read_bytes())
    content[-1] ^= 1
    (tiny / name).write_bytes(content)
    assert model_digest(tiny) != before


def test_a_renamed_and_an_added_file_change_the_digest(tiny):
    digests = [model_digest(tiny)]
    shutil.move(tiny / "config.json", tiny / "config2.json")
    digests.append(model_digest(tiny))
    (tiny / "vocab.txt").write_text("")
    digests.append(model_digest(tiny))
    assert len(set(digests)) == 3


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


def test_nothing_is_written_to_the_terminal(tiny, capfd):
    features = SentenceEmbeddings(tiny, device="cpu")
    features.transform([""] * 1500, [str(i) for i in range(1500)])
    assert capfd.readouterr() == ("", "")


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
        {"feature_bound": 0.0}, {"feature_bound": 1e200}, {"embedding_norm": 0.0},
        {"embedding_norm": 1.5}, {"embedding_norm": "half"}, {"with_shape": "yes"},
        {"batch_size": 0}, {"device": "a-toaster"},
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused(shared_model, setting):
    with pytest.raises(UsageError, match=f"{next(iter(setting))}"):
        SentenceEmbeddings(shared_model, **{"device": "cpu"} | setting)


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


GOOD = "first mix flour and water , then wait ."
BAD = "no no no ! i do not know {} ?"
QUESTION = "how do i bake rye bread {} ?"


@pytest.fixture
def reward(features, open_ledger):
    """A reward of 300 judgments, of which an honest 90 % prefer the good answer."""
    rows = [
        {
            "prompt": QUESTION.format(i),
            "first": GOOD,
            "second": BAD.format(i),
            "label": int(i % 10 != 0),
        }
        for i in range(300)
    ]
    pairs = sordino.read_pairs(rows)
    private = sordino.privatize(
        pairs, sordino.RandomizedResponse(epsilon=4.0), ledger=open_ledger(4.0)
    )
    return sordino.fit_reward(private, features=features)


def test_a_reward_is_learned_and_used(reward):
    """The label is right 9 of 10 times and kept with .982: 300 answers tell (chance of a wrong
    sign, by Hoeffding, below 1e-30)."""
    prompt = [QUESTION.format("now")]
    assert reward.predict_proba(prompt, [GOOD], [BAD.format("now")])[0] > 0.5
    policy = sordino.gibbs_policy(reward, temperature=0.1)
    chances = policy.probabilities(prompt, [[BAD.format("now"), GOOD]])[0]
    assert chances[1] > chances[0]


def test_differences_are_bounded_and_change_sign(features):
    prompts, first, second = ["what", "how"], ["yes", "no !"], ["a piece .", "no !"]
    forth = differences(features, prompts, first, second)
    back = differences(features, prompts, second, first)
    np.testing.assert_allclose(forth, -back, atol=1e-6)
    assert (np.linalg.norm(forth, axis=1) <= 2 * features.feature_bound).all()
    assert np.linalg.norm(forth[0]) > 0.1
    assert not forth[1].any(), "equal answers differ in nothing, to the last bit"
    rows = [features.transform(prompts, answers) for answers in (first, second)]
    np.testing.assert_allclose(forth, rows[0] - rows[1], atol=1e-5)


def test_a_saved_reward_knows_the_model_and_not_its_place(reward, shared_model, tmp_path):
    reward.save(tmp_path / "reward.json")
    text = (tmp_path / "reward.json").read_text()
    assert str(shared_model.parent) not in text
    stored = json.loads(text)["features"]
    assert stored["name"] == "tiny"
    assert len(stored["digest"]) == 64


def test_a_saved_reward_is_used_with_the_model_in_another_folder(reward, tiny, tmp_path):
    reward.save(tmp_path / "reward.json")
    elsewhere = tiny.rename(tiny.parent / "renamed")
    features = SentenceEmbeddings(elsewhere, device="cpu")
    loaded = RewardModel.load(tmp_path / "reward.json", features=features)
    prompts, answers = [QUESTION.format(1), "what ?"], [GOOD, "a piece ."]
    np.testing.assert_array_equal(loaded.score(prompts, answers), reward.score(prompts, answers))


def test_another_model_is_refused(reward, tiny, tmp_path):
    config = tiny / "config.json"
    config.write_text(config.read_text().replace("1e-12", "1e-5"))
    other = SentenceEmbeddings(tiny, device="cpu")
    reward.save(tmp_path / "reward.json")
    with pytest.raises(DataError, match="digest would differ"):
        RewardModel.load(tmp_path / "reward.json", features=other)


@pytest.mark.parametrize(
    "setting", [{"feature_bound": 2.0}, {"embedding_norm": 0.25}, {"with_shape": False}]
)
def test_other_settings_are_refused(features, shared_model, setting):
    other = SentenceEmbeddings(shared_model, **{"device": "cpu"} | setting)
    with pytest.raises(DataError, match=next(iter(setting))):
        features_from_dict(features.to_dict(), features=other)


def test_without_the_model_the_way_out_is_said(features):
    with pytest.raises(UsageError, match=r"sordino\.language\.SentenceEmbeddings"):
        features_from_dict(features.to_dict())


def test_only_feature_maps_of_the_same_kind_are_taken(features):
    settings = features.to_dict()
    with pytest.raises(UsageError, match="must be a feature map, got str"):
        features_from_dict(settings, features="tiny")
    with pytest.raises(DataError, match="kind"):
        features_from_dict(settings, features=sordino.HashedText(dimension=45))
    with pytest.raises(DataError, match="would differ"):
        features_from_dict(settings | {"more": 1}, features=features)
    hashed = sordino.HashedText(dimension=64)
    assert features_from_dict(hashed.to_dict(), features=hashed) is hashed
