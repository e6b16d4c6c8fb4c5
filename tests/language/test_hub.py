"""What goes to the Hub: certified folders, by files of known names, only where a user asks."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

import huggingface_hub as hub
import yaml

import sordino
from sordino._files import sha256_of
from sordino._version import __version__
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.language import (
    PrivateDPOTrainer,
    PrivateRewardTrainer,
    RebelTrainer,
    TextRewardModel,
    push_to_hub,
)
from sordino.language.models.checkpoints import load_reward_checkpoint, load_tokenizer
from sordino.language.models.promises import CheckpointPromise

from ._training import trained


class FakeHub:
    """Keeps what it was sent."""

    def __init__(self):
        self.asked, self.files = [], None

    def create_repo(self, repo_id, **settings):
        self.asked.append((repo_id, settings))

    def create_commit(self, repo_id, operations, **settings):
        self.asked.append((repo_id, settings))
        self.files = {}
        for each in operations:
            with each.as_file() as file:
                self.files[each.path_in_repo] = file.read()


@pytest.fixture
def paid(word_pairs, open_ledger):
    """Return randomized answers and the ledger that paid, of a release or a simulation."""

    def make(epsilon=1.0, **more):
        ledger = open_ledger(epsilon)
        coin = sordino.RandomizedResponse(epsilon)
        return sordino.privatize(word_pairs(40), coin, ledger=ledger, **more), ledger

    return make


def linear(pairs, folder):
    """Save a linear reward of answers."""
    sordino.fit_reward(pairs, features=sordino.HashedText(dimension=32)).save_pretrained(folder)
    return folder


def text_reward(pairs, folder, model):
    """Save a language model that says it was trained on answers."""
    promise = CheckpointPromise.of(pairs, kind="reward")
    made = TextRewardModel(
        load_reward_checkpoint(model, device="cpu"), load_tokenizer(model), promise=promise,
        reward_bound=5.0, max_length=64,
    )  # fmt: skip
    made.save(folder)
    return folder


def test_a_saved_reward_is_a_folder_with_a_card_and_comes_back(paid, tmp_path, word_pairs):
    pairs, _ = paid()
    features = sordino.HashedText(dimension=32)
    reward = sordino.fit_reward(pairs, features=features)
    reward.save_pretrained(tmp_path / "kept")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "README.md", "reward.json", "sordino.json"
    }  # fmt: skip
    again = sordino.RewardModel.load(tmp_path / "kept")
    np.testing.assert_array_equal(again.weights, reward.weights)
    card = hub.ModelCard((tmp_path / "kept/README.md").read_text())
    assert card.data.to_dict()["privacy"]["epsilon"] == 1.0
    assert 'RewardModel.load("this/folder")' in card.text
    assert "`randomized-at-ingestion`" in card.text
    with pytest.raises(UsageError, match="exists already"):
        reward.save_pretrained(tmp_path / "kept")


@pytest.mark.parametrize("kind", ["linear", "language"])
def test_what_goes_is_certified_and_known_by_name(paid, tmp_path, tiny_llama, kind):
    pairs, ledger = paid()
    folder = tmp_path / "kept"
    linear(pairs, folder) if kind == "linear" else text_reward(pairs, folder, tiny_llama)
    shutil.copy(ledger.path, folder / "spend.db")  # what lies about stays
    for stray in ("training_args.bin", "optimizer.pt", "trainer_state.json", "prefs.jsonl", ".env"):
        (folder / stray).write_text("CANARY")
    before, client = ledger.path.read_bytes(), FakeHub()
    certificate = push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert ledger.path.read_bytes() == before
    sort = {"repo_type": "model"}
    assert client.asked[0] == ("me/reward", {"private": True, "exist_ok": True, **sort})
    wanted = {"linear": {"reward.json", "sordino.json"}, "language": {
        "sordino.json", "config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "chat_template.jinja",
    }}[kind]  # fmt: skip
    assert set(client.files) == wanted | {"README.md", "certificate.json"}
    whole = b"".join(client.files.values())
    assert b"CANARY" not in whole
    for place in (str(tmp_path), str(tiny_llama)):
        assert place.encode() not in whole
    sent = json.loads(client.files["certificate.json"])
    assert (sent["guarantee"]["epsilon"], sent["sordino"]) == (1.0, __version__)
    assert set(sent["files"]) == wanted
    assert certificate.release_ids == pairs.release_ids
    card = client.files["README.md"].decode()
    assert ledger.head.digest in card
    assert yaml.safe_load(card.split("---")[1])["privacy"]["caveats"] == ["randomized-at-ingestion"]
    assert "## How to use it" in card
    (folder / "README.md").unlink()
    push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert ledger.head.digest in client.files["README.md"].decode()


def edited(path, **changes):
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | changes))


def listed(folder, by="sordino.json"):
    found = sha256_of(folder / "reward.json")
    said = {"reward_sha256": found, "files": {"reward.json": found}}
    (folder / by).write_text(json.dumps({"format": "sordino.files", "version": 1, **said}))


@pytest.mark.parametrize("by", ["sordino.json", "result.json"])
def test_a_linear_reward_goes_only_as_it_was_written(paid, tmp_path, by):
    """Its promise stands in the file itself: other weights under it would go unseen."""
    pairs, ledger = paid()
    folder, client = linear(pairs, tmp_path / "kept"), FakeHub()
    (folder / "sordino.json").unlink()
    with pytest.raises(DataError, match=r"reward\.json is not among the files.*Nothing was sent"):
        push_to_hub(folder, ledger, repository="me/reward", client=client)
    listed(folder, by)
    push_to_hub(folder, ledger, repository="me/reward", client=client)
    sent = {"README.md", "certificate.json", "reward.json", "sordino.json"}
    assert set(client.files) == (sent if by == "sordino.json" else sent - {"sordino.json"})
    client, weights = FakeHub(), json.loads((folder / "reward.json").read_text())["weights"]
    edited(folder / "reward.json", weights=[weights[0] + 1, *weights[1:]])
    said = rf"reward\.json is not the file that was written that {by} speaks for"
    with pytest.raises(DataError, match=said):
        push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert client.asked == []


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("another ledger", PrivacyError, "lacks an entry"),
        ("no entry", PrivacyError, "lacks an entry"),
        ("other answers", PrivacyError, "paid for other answers"),
        ("a smaller promise", PrivacyError, "claims epsilon=0.5"),
        ("a card that says less", PrivacyError, "does not state what"),
        ("a seed", PrivacyError, "simulated"),
        ("a weak promise", PrivacyError, "It protects nobody. Nothing was sent"),
        ("no promise", UsageError, "nothing says what was promised"),
    ],
)
def test_without_a_complete_certificate_nothing_is_sent(
    paid, tmp_path, open_ledger, how, error, said
):
    simulate = {"simulate_seed": 1} if how == "a seed" else {}
    pairs, ledger = paid(21.0 if how == "a weak promise" else 1.0, **simulate)
    folder = linear(pairs, tmp_path / "kept")
    kept = json.loads((folder / "reward.json").read_text())
    if how == "another ledger":
        _, ledger = paid()
    elif how == "no entry":
        edited(folder / "reward.json", release_ids=[])
    elif how == "other answers":
        edited(folder / "reward.json", artifact="00" * 32)
    elif how == "a smaller promise":
        edited(folder / "reward.json", guarantee=kept["guarantee"] | {"epsilon": 0.5})
    elif how == "a card that says less":
        card = folder / "README.md"
        card.write_text(card.read_text().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    elif how == "no promise":
        (folder / "reward.json").unlink()
    if (folder / "reward.json").exists():
        listed(folder)  # as whoever forges it would
    client = FakeHub()
    with pytest.raises(error, match=said):
        push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert (client.asked, client.files) == ([], None)


def test_a_data_set_goes_as_one_and_rows_that_were_exchanged_do_not(paid, tmp_path, monkeypatch):
    from sordino import cli

    pairs, ledger = paid()
    linear(pairs, tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"prompt": "p", "candidates": ["a", "b c"]}\n')
    words = ["synthesize", "kept/reward.json", "q.jsonl", "--out", "rows"]
    assert cli.run([*words, "--ledger", str(ledger.path)]) == 0
    client = FakeHub()
    push_to_hub("rows", ledger, repository="me/rows", private=False, client=client)
    assert client.asked[0] == (
        "me/rows", {"private": False, "exist_ok": True, "repo_type": "dataset"}
    )  # fmt: skip
    assert set(client.files) == {
        "README.md", "certificate.json", "train.jsonl", "sordino.json"
    }  # fmt: skip
    (tmp_path / "rows/train.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"train.jsonl is not the file"):
        push_to_hub("rows", ledger, repository="me/rows", client=client)
    edited(tmp_path / "rows/sordino.json", files={})  # says nothing of what would be sent
    with pytest.raises(DataError, match=r"train.jsonl is not among the files"):
        push_to_hub("rows", ledger, repository="me/rows", client=client)


def test_weights_of_more_releases_than_the_promise_names_do_not_go(paid, tmp_path, tiny_llama):
    pairs, ledger = paid()
    folder = text_reward(pairs, tmp_path / "kept", tiny_llama)
    config = json.loads((folder / "config.json").read_text())
    config["sordino_promise"]["sources"].append(
        config["sordino_promise"]["sources"][0] | {"artifact": "11" * 32}
    )
    config["sordino_promise"]["guarantee"]["epsilon"] = 2.0
    (folder / "config.json").write_text(json.dumps(config))
    client = FakeHub()
    with pytest.raises(PrivacyError, match="more releases"):
        push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert client.files is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rollouts_0.safetensors", "is not among the files"),  # what a run keeps of its answers
        ("uncertainty.safetensors", "is not among the files"),  # of an earlier reward
        ("vocab.txt", "is not among the files"),
        ("model.safetensors", "is not the file that was written"),
        ("tokenizer.json", "is not the file that was written"),
    ],
)
def test_files_that_the_promise_does_not_speak_for_do_not_go(
    paid, tmp_path, tiny_llama, name, said
):
    pairs, ledger = paid()
    folder, client = text_reward(pairs, tmp_path / "kept", tiny_llama), FakeHub()
    kept = (folder / name).read_bytes() if (folder / name).exists() else b""
    (folder / name).write_bytes(kept + b"\n")
    with pytest.raises(DataError, match=f"{name} {said}.*Nothing was sent"):
        push_to_hub(folder, ledger, repository="me/reward", client=client)
    assert client.asked == []


@pytest.mark.parametrize("trainer", [PrivateRewardTrainer, PrivateDPOTrainer, RebelTrainer])
def test_a_trainer_sends_nothing_itself(trainer):
    with pytest.raises(UsageError, match=r"sordino\.language\.push_to_hub"):
        trainer.push_to_hub(None)


@pytest.mark.deep
def test_weights_that_were_trained_on_raw_pairs_are_paid_for_too(central, ledger_of, tmp_path):
    ledger, client = ledger_of(), FakeHub()
    trainer = trained(central(ledger=ledger))
    trainer.save_model(tmp_path / "kept")
    certificate = push_to_hub(tmp_path / "kept", ledger, repository="me/r", client=client)
    assert certificate.guarantee.unit == "record"
    assert {"model.safetensors", "sordino.json"} < set(client.files)
    assert not any("optimizer" in name or "training" in name for name in client.files)
