"""One digest for the page: whoever changes a word or a line of it changes the digest."""

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from sordino.collection import study as page_files
from sordino.collection.study import read_languages, read_page
from sordino.errors import DataError

PACKAGED = Path(page_files.__file__).parent / "page"


@pytest.fixture
def own(tmp_path):
    """Return a maker of language files like the English one, with some texts in another way."""

    def make(name="xx", **changes):
        value = json.loads((PACKAGED / "languages/en.json").read_text("utf-8"))
        texts = value["texts"] | {key.replace("__", "."): text for key, text in changes.items()}
        value = {"code": name, "name": "Own", "texts": texts}
        (tmp_path / "own.json").write_text(json.dumps(value, indent=9), "utf-8")

    return make


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """Return a copy of the page's files that is read in their place."""
    folder = tmp_path / "copy"
    shutil.copytree(PACKAGED, folder)
    monkeypatch.setattr(page_files, "_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    "name", ["index.html", "randomize.js", "languages/de.json", "vendor/purify.es.mjs"]
)
def test_every_file_is_in_the_digest(page_folder, name):
    before = read_page().digest
    assert read_page().digest == before
    raw = (page_folder / name).read_text("utf-8")
    (page_folder / name).write_text(raw + "\n", "utf-8")
    assert read_page().digest != before


def test_files_of_others_are_the_ones_that_are_named_and_carry_their_licences():
    named = (PACKAGED / "vendor/README.md").read_text("utf-8")
    digests = dict(re.findall(r"\| `([\w.-]+\.mjs)` .*`([0-9a-f]{64})` \|", named))
    folder = PACKAGED / "vendor"
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.mjs")}
    assert digests == found != {}
    licences = {path.name for path in folder.glob("*.LICENSE.txt")}
    assert set(re.findall(r"`([\w.-]+\.txt)`", named)) == licences
    sent = {name for name in read_page().files if name.startswith("vendor/")}
    assert sent == {f"vendor/{name}" for name in found.keys() | licences}


def test_the_words_that_come_with_sordino_need_no_study(make_study):
    study = make_study()
    assert read_page(read_languages(study)).digest == read_page().digest
    assert read_page(reversed(read_languages(study))).digest == read_page().digest


def test_words_of_its_own_give_a_study_another_digest(make_study, own):
    own()
    study = make_study(languages=["en", "own.json"])
    digest = read_page(read_languages(study)).digest
    assert digest != read_page().digest
    own(page__name="Other")
    assert read_page(read_languages(study)).digest not in {digest, read_page().digest}


def test_the_service_and_whoever_asks_it_find_the_same_digest(talk, own):
    own()
    talk = talk(languages=["own.json", "en"])
    sent = talk.client.get("/api/texts").json()["languages"]
    found = read_page(sent).digest
    assert talk.client.get("/api/health").json()["page"] == found != read_page().digest


def places(text):
    return page_files._PLACE.findall(text)


@pytest.mark.parametrize("change", ["lost", "other", "more"])
def test_a_text_of_ones_own_has_the_places_of_the_english_one(make_study, own, change):
    texts = json.loads((PACKAGED / "languages/en.json").read_text("utf-8"))["texts"]
    key, text = next((key, text) for key, text in texts.items() if places(text))
    place = places(text)[0]
    changed = {
        "lost": text.replace(place, "10"), "other": text.replace(place, "{x}"), "more": text + "{x}"
    }  # fmt: skip
    own(**{key: changed[change]})
    with pytest.raises(DataError) as refused:
        read_languages(make_study(languages=["own.json"]))
    assert repr(key) in str(refused.value)
    assert place in str(refused.value)


@pytest.mark.parametrize("text", ["", 3, None, "\ud800"])
def test_a_text_that_cannot_be_shown_is_refused(make_study, own, text):
    own(page__name=text)
    with pytest.raises(DataError, match=r"own\.json"):
        read_languages(make_study(languages=["own.json"]))
