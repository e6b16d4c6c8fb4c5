"""Raw judgments in, randomized answers out: in memory, in a file, or in a folder of files."""

import json
import tempfile
from pathlib import Path

import pytest

from sordino.engines.engine import InProcess
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import read_pairs
from sordino.privatization.answers import privatize
from sordino.privatization.chunks import privatize_chunks

wherever = pytest.mark.parametrize("place", ["memory", "file", "folder"])


def privatize_rows(place, rows, folder, mechanism, *, ledger, **more):
    """Randomize raw records at one of these places, inside a folder; return their answers."""
    if place == "memory":
        return privatize(read_pairs(rows), mechanism, ledger=ledger, **more).answers.tolist()
    home = Path(tempfile.mkdtemp(dir=folder))
    raw, out = home / "raw.jsonl", home / "out" / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if place == "file":
        out.parent.mkdir()
        privatize_file(raw, out, mechanism, ledger=ledger, **more)
    else:
        given = {"ledger": ledger, "engine": InProcess()} | more
        privatize_chunks(find_chunks(raw), out.parent, mechanism, **given)
    return [json.loads(line)["answer"] for line in out.read_text().splitlines()]


def privatize_file(source, destination, mechanism, *, ledger, reading=None, **more):
    """Write a raw file's answers, randomized, with a manifest beside them; return the manifest."""
    chunks = find_chunks(source, **(reading or {}))
    given = {"ledger": ledger, "engine": InProcess(), "one_file": True} | more
    [manifest] = privatize_chunks(chunks, destination, mechanism, **given)
    return manifest
