"""A model comes from a folder: nothing is fetched, nothing foreign is run, and it has a digest."""

import json
import shutil
import subprocess
import sys

import pytest

from sordino.errors import FileSystemError, MissingExtra, UsageError
from sordino.language import SentenceEmbeddings
from sordino.language.embeddings import model_digest, sentence_model_folder

HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize("path", ["no-such-folder", HUB_NAME, "", "a\0b", "https://example.org/m"])
def test_a_folder_that_is_not_there_is_refused_without_asking_anybody(path, no_network):
    with pytest.raises(FileSystemError, match="nothing is ever fetched") as caught:
        SentenceEmbeddings(path)
    assert repr(path) in str(caught.value)


def test_the_refusal_does_not_wait_for_a_library():
    """In a fresh process in which loading any of them would fail."""
    program = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers', 'huggingface_hub'):\n"
        "    sys.modules[name] = None\n"
        "from sordino.errors import FileSystemError\n"
        "from sordino.language import SentenceEmbeddings\n"
        "try:\n"
        f"    SentenceEmbeddings({HUB_NAME!r})\n"
        "except FileSystemError:\n"
        "    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr


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
    assert str(caught.value).endswith(
        "Make sure you have installed everything with: pip install 'sordino[language]'"
    )
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
    before = model_digest(sentence_model_folder(shared_model))
    (tiny / "README.md").write_text("Another description.")
    (tiny / ".cache").mkdir()
    (tiny / ".cache" / "lock.json").write_text("{}")
    (tiny / "onnx").mkdir()
    (tiny / "onnx" / "model.json").write_text("{}")
    (tiny / "tf_model.h5").write_bytes(b"weights of another library")
    assert model_digest(sentence_model_folder(tiny)) == before


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
