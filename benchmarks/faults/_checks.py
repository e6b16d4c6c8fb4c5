"""What must hold of answers in many files after any kill; whatever does not ends the script."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from sordino.engines.exchange import PARTS
from sordino.preferences.chunks import Chunks
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import manifest_path
from sordino.preferences.records import canonical, person_key

__all__ = [
    "Broken",
    "answers_by_question",
    "contents",
    "need",
    "refuse_lost_chunks",
    "refuse_mixed_chunks",
    "refuse_mixed_memo",
    "rows_of",
]

Question = tuple[str | None, str]


class Broken(Exception):
    """Something that must hold does not."""


def need(holds: object, what: str) -> None:
    """Stop unless something holds.

    Raises:
        Broken: It does not.
    """
    if not holds:
        raise Broken(what)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every byte in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rows_of(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def answers_by_question(folder: Path) -> dict[Question, str]:
    """Return which text every person is said to prefer, by person and prompt.

    Raises:
        Broken: One question of a person has two answers.
    """
    found: dict[Question, str] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for row in rows_of(path):
            asked = row.get("person"), row["prompt"]
            answer = row["first"] if row["answer"] else row["second"]
            need(found.setdefault(asked, answer) == answer, "a question has two answers")
    return found


def refuse_lost_chunks(given: Chunks, out: Path, ledger: Path) -> None:
    """Refuse a file that is missing, incomplete or there twice, and anything left behind."""
    raw = {Path(chunk.path) for chunk in given.chunks}
    wanted = {path.name for path in raw} | {manifest_path(path).name for path in raw}
    need({path.name for path in out.iterdir()} == wanted, "files are missing, or others are there")
    for path in raw:
        made = out / path.name
        stated = json.loads(manifest_path(made).read_text())["sha256"]
        need(stated == hashlib.sha256(made.read_bytes()).hexdigest(), "another file's manifest")
        asked, answered = (
            [(row.get("person"), row["prompt"]) for row in rows_of(file)] for file in (path, made)
        )
        need(asked == answered, "records are missing, or stand elsewhere")
    left = [*out.rglob("*.partial"), *ledger.parent.rglob("*.partial")]
    need(not left, "something half-written is left")


def _draws(coins: Path, task: str, at: int) -> list[np.ndarray]:
    """Return every draw of an answer that some task of a chunk made."""
    paths = [path for path in coins.glob(f"{task}-{at}-*.npy") if _finished(path)]
    return [draw for draw in map(np.load, paths) if len(draw)]


def _finished(path: Path) -> bool:
    return not path.name.endswith(".unfinished.npy")


def refuse_mixed_chunks(given: Chunks, out: Path, coins: Path) -> tuple[int, int]:
    """Refuse answers of a chunk that are not those of exactly one draw; return (used, drawn)."""
    drawn = 0
    for chunk in given.chunks:  # a file is one chunk here
        rows = rows_of(out / Path(chunk.path).name)
        shown = np.array([row["answer"] for row in rows])
        draws = _draws(coins, "AnswerChunk", chunk.number)
        drawn += len(draws)
        same = [draw for draw in draws if np.array_equal(draw, shown)]
        need(len(same) == 1, "the answers of a file are not those of one draw")
    return len(given.chunks), drawn


def refuse_mixed_memo(
    out: Path, ledger: sordino.Ledger, coins: Path, *, drawing: Iterable[str]
) -> tuple[int, int]:
    """Refuse stored answers that are not those of one draw for each part and entry, or not shown.

    Args:
        out: What was written.
        ledger: Whose memo it is.
        coins: Every draw.
        drawing: Entries that may have drawn.

    Returns:
        How many draws are used, and how many there were.
    """
    folder = ledger.path.with_suffix(".memo")
    memo, used, drawn = AnswerMemo(str(folder), PARTS), 0, 0
    stored: dict[bytes, int] = {}
    for part in range(PARTS):
        found = memo.stored(part)
        for key, answer in zip(found.keys.tolist(), found.answers.tolist(), strict=True):
            need(key not in stored, "a question of a person is stored twice")
            stored[key] = answer
        draws = _draws(coins, "AnswerPart", part)
        drawn += len(draws)
        for release_id in drawing:
            answers = np.load(folder / f"{part:03d}-{PARTS:03d}-{release_id}.npy")["answer"]
            if len(answers):
                same = [draw for draw in draws if np.array_equal(draw, answers)]
                need(same, "the answers of a part are not those of one draw")
                used += 1
    names = {re.split(r"[-.]", path.name)[2] for path in folder.glob("*.npy")}
    need(names <= set(drawing), "answers of no entry are stored")
    for path in out.glob("*.jsonl"):
        for row in rows_of(path):
            need(stored[_key(row)] == row["answer"], "an answer is shown that is not stored")
    return used, drawn


def _key(row: dict[str, Any]) -> bytes:
    """Return who answered what, as it is stored."""
    question = canonical(row["prompt"], row["first"], row["second"])[1]
    return (person_key(row["person"])[:16] + question[:16]).rstrip(b"\0")
