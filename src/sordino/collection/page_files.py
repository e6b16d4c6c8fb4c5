"""The files of the page, read once, with one digest by which anybody can compare them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from sordino.collection.study import Study
from sordino.errors import DataError, FileSystemError
from sordino.privacy.ledger_chain import digest_of_json

_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGEST: Final = b"__PAGE__"  # written in place of it: the page's own digest, so that caches end
_FIRST: Final = "en"
_NAMED: Final = {"code", "name"}
_PLACE: Final = re.compile(r"\{\w+\}", re.ASCII)  # as the page fills them in
_HALF: Final = re.compile("[\ud800-\udfff]")  # no character, and nothing that can be sent


@dataclass(frozen=True, slots=True)
class _PageFile:
    """One file as it is sent."""

    content: bytes  # its bytes
    kind: str  # its Content-Type


@dataclass(frozen=True, slots=True)
class Page:
    """All files of the page by name, and one SHA-256 for all of them as they lie here."""

    files: Mapping[str, _PageFile]  # what is sent
    # Of names and contents, words in all languages included; it depends on a study only if that
    # brings words of its own.
    digest: str


def _folder() -> Traversable:
    return files("sordino.collection") / "page"


def read_page(languages: Iterable[Mapping[str, Any]] = ()) -> Page:
    """Return the files of the page."""
    found = {
        entry.name: entry.read_bytes()
        for entry in _folder().iterdir()
        if entry.is_file() and Path(entry.name).suffix in _KINDS
    }
    packaged = {  # the languages that come with sordino
        f"languages/{entry.name}": entry.read_bytes()
        for entry in (_folder() / "languages").iterdir()
        if entry.name.endswith(".json")
    }
    whole = hashlib.sha256()
    for name, raw in sorted((found | packaged).items()):
        whole.update(f"{name} {hashlib.sha256(raw).hexdigest()}\n".encode())
    known = {_digest_of_words(json.loads(raw)) for raw in packaged.values()}
    for own in sorted({_digest_of_words(words) for words in languages} - known):
        whole.update(f"own {own}\n".encode())
    digest = whole.hexdigest()
    sent = {
        name: _PageFile(raw.replace(_DIGEST, digest.encode()), _KINDS[Path(name).suffix])
        for name, raw in found.items()
    }
    return Page(sent, digest)


def _digest_of_words(language: Mapping[str, Any]) -> str:
    """Return a SHA-256 of one language that does not depend on how its file is laid out."""
    words = {name: language[name] for name in ("code", "name", "texts")}
    return digest_of_json(words)


def read_languages(study: Study) -> list[dict[str, Any]]:
    """Return the texts of the page in each language of a study, the first one first."""
    # A language is the code of one that comes with sordino, or a JSON file like theirs beside the
    # study: `code`, `name` and `texts` with every key. A text must have the same `{places}` as the
    # English one: numbers that people decide by are filled in there.
    folder = _folder() / "languages"
    wanted = json.loads((folder / f"{_FIRST}.json").read_text("utf-8"))["texts"]
    found = []
    for name in study.languages:
        packaged = folder / f"{name}.json"
        inside = name.isalpha() and packaged.is_file()
        value: object = None
        reason = ""
        try:
            value = json.loads((packaged if inside else study.folder / name).read_text("utf-8"))
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except (ValueError, RecursionError):
            pass  # it holds no object
        if reason:
            raise FileSystemError(f"The language file {name!r} cannot be read ({reason}).")
        texts = value.get("texts") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(texts, dict) or not value.keys() >= _NAMED:
            raise DataError(f"The language file {name!r} must hold 'code', 'name' and 'texts'.")
        other = sorted(texts.keys() ^ wanted.keys())
        words = [value["code"], value["name"], *texts.values()]
        if other or not all(isinstance(w, str) and w and not _HALF.search(w) for w in words):
            what = "missing" if other and other[0] in wanted else "unknown"
            key = f" ({other[0]!r} is {what})" if other else ""
            raise DataError(f"The language file {name!r} must give every text of the page{key}.")
        for key, text in texts.items():
            places = set(_PLACE.findall(wanted[key]))
            if set(_PLACE.findall(text)) != places:
                needed = ", ".join(sorted(places)) or "none"
                raise DataError(
                    f"The language file {name!r} must have the same places in braces as the "
                    f"English texts: in {key!r} {needed}."
                )
        found.append({"code": value["code"], "name": value["name"], "texts": texts})
    return found
