"""Two spellings of an id are one person, wherever rows of persons are told apart."""

import csv
import json
import unicodedata
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from sordino import REPLACE_ONE, Pairs, Rankings, read_pairs, read_rankings
from sordino._validate import person_id
from sordino.algorithms.user_slots import UserSlots
from sordino.auditing.releases.reading import read_released
from sordino.errors import DataError
from sordino.mechanisms.grid import first_rows
from sordino.mechanisms.label_sum import LabelGaussian, counted_rows, farthest
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.chunks import find_chunks, judgments
from sordino.preferences.trajectories import Trajectories

ONE = {
    "numbers": (1, np.int64(1), np.uint8(1), pa.scalar(1, pa.int32()), "1", pa.scalar(" 1")),
    "spaces": ("1", " 1", "1 ", "\t1\n", "\u00a01", "1\u3000"),
    "spaces inside": ("a 1", "a\u00a01", "a\u20091", "a  1", "a\t1", "a\u28001"),
    "no width": ("1", "\ufeff1", "1\u200b", "\u200e 1", "1\u00ad"),
    "unseen": (
        "1",
        "1\x7f",
        "\x8f1",
        "1\u034f",
        "\u31641",
        "1\ufe0f",
        "1\U000e0101",
        "\U000e01ff1",
    ),
    "letters": ("Zo\u00eb", "Zoe\u0308", " Zoe\u200d\u0308", np.str_("Zo\u00eb ")),
}
NOBODY = (
    None,
    True,
    1.0,
    np.float64(1),
    float("nan"),
    b"1",
    "",
    " ",
    "\u200b",
    "\ud800",
    "\ufe0f",
    10**5000,
)


TEXTS = ("one", "two")


def plain(ids):
    """Return ids as a file holds them: texts, and numbers where they are numbers."""
    found = [person.as_py() if hasattr(person, "as_py") else person for person in ids]
    return [str(one) if isinstance(one, str) else int(one) for one in found]


def judged(ids, **outcome):
    question = {"prompt": "p", "first": "a", "second": "b"} | (outcome or {"label": 1})
    return [question | {"person": person} for person in ids]


def lines(folder, records):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    return path


def table(folder, records):
    path = folder / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path


def numbered(n):
    return np.arange(1, n + 1)[:, None] * 1.0


def steps(ids):
    one = np.ones((len(ids), 2, 1))
    return Trajectories.from_steps(one, 2 * one, [1] * len(ids), ids).pairs


def chunked(path):
    chunks = find_chunks(path)
    blocks = [block for chunk in chunks for block in judgments(chunks, chunk)]
    return [name for pairs in blocks for name in pairs.persons]


def parquet_people(ids, folder):
    columns = {"difference": pa.array([[1.0]] * len(ids), pa.list_(pa.float32()))}
    columns |= {"label": [1] * len(ids), "person": list(map(str, plain(ids)))}
    parquet.write_table(pa.table(columns), folder / "a.parquet")
    return chunked(folder / "a.parquet")


def arrived(ids, **served):
    slots = UserSlots([(person, np.zeros((2, 1))) for person in ids], None, **served)
    if not served:
        slots.batch(0, 1)
    with pytest.raises(DataError, match="only 0 users"):
        slots.batch(0 if served else 1, 1)
    return slots.served


def one_cap(design, n):
    """A cap of 1 leaves one row; with the cap at all of them one change moves all."""
    assert design(1).used.sum() == 1
    assert sorted(design(n).worst) == list(range(n))
    return {"one"}


def labels(ids):
    def design(most):
        noise = LabelGaussian(1.0, delta=1e-6, records_per_person=most)
        return noise.prepare(numbered(len(ids)), persons=ids)

    return one_cap(design, len(ids))


def slates(ids):
    n = len(ids)

    def design(most):
        noise = RankingGaussian(1.0, delta=1e-6, statistic="borda", records_per_person=most)
        return noise.prepare(numbered(2 * n), np.arange(n + 1) * 2, persons=ids)

    return one_cap(design, n)


def counted(ids):
    n = len(ids)
    assert first_rows(ids, n, 1).tolist() == [True] + [False] * (n - 1)
    assert counted_rows(n, ids, np.arange(n)[::-1], 1).tolist() == [False] * (n - 1) + [True]
    assert len(farthest(np.ones(n, dtype=np.int64), ids)[1]) == n
    return {"one"}


def people(ids):
    from sordino.language.user_level import SlotPrivacy, batches_of

    privacy = SlotPrivacy(1.0, 1e-6, neighbors=REPLACE_ONE, slots=2, batches=1, clip=1.0)
    found = [{"person": person, "prompt": "p"} for person in (*ids, "somebody else")]
    (batch,) = batches_of(found, privacy, length=len, room=9, overlong="refuse")
    return [person.id for person in batch if person.id != "somebody else"]


ENTRIES = {
    "rows": lambda ids, _: read_pairs(judged(ids)).persons,
    "lists": lambda ids, _: (
        read_pairs(
            [{"prompt": "p", "first": "a", "second": "b", "labels": [1] * len(ids), "persons": ids}]
        ).persons
    ),
    "lines": lambda ids, at: read_pairs(lines(at, judged(plain(ids)))).persons,
    "table": lambda ids, at: read_pairs(table(at, judged(plain(ids)))).persons,
    "frame": lambda ids, _: (
        read_pairs(
            pd.DataFrame(
                {
                    name: pd.Series([row[name] for row in judged(ids)], dtype=object)
                    for name in judged(ids)[0]
                }
            )
        ).persons
    ),
    "arrow": lambda ids, _: read_pairs(pa.Table.from_pylist(judged(map(str, plain(ids))))).persons,
    "chunks": lambda ids, at: chunked(lines(at, judged(plain(ids)))),
    "parquet": parquet_people,
    "features": lambda ids, _: (
        Pairs.from_features(numbered(len(ids)), [1] * len(ids), persons=ids).persons
    ),
    "replaced": lambda ids, _: replace(read_pairs(judged(range(len(ids)))), persons=ids).persons,
    "steps": lambda ids, _: steps(ids).persons,
    "ballots": lambda ids, _: (
        read_rankings(
            [{"prompt": "p", "candidates": TEXTS, "ranking": [0], "person": one} for one in ids]
        ).persons
    ),
    "orders": lambda ids, _: (
        Rankings.from_orders(TEXTS, [["one"]] * len(ids), ids, offered="all").persons
    ),
    "other ballots": lambda ids, _: (
        replace(
            Rankings.from_orders(TEXTS, [["one"]] * len(ids), offered="all"), persons=ids
        ).persons
    ),
    "audited": lambda ids, at: (
        read_released(lines(at, judged(plain(ids), answer=1)), epsilon=1.0).persons
    ),
    "slots": lambda ids, _: arrived(ids),
    "slots taken": lambda ids, _: arrived(ids[1:], served=ids[:1]),
    "capped labels": lambda ids, _: labels(ids),
    "capped ballots": lambda ids, _: slates(ids),
    "capped rows": lambda ids, _: counted(ids),
    "prompts": lambda ids, _: people(ids),
}


@pytest.mark.parametrize("spellings", ONE.values(), ids=ONE)
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_one_person_under_many_spellings_is_one_everywhere(entry, spellings, tmp_path):
    if entry is ENTRIES["prompts"]:
        pytest.importorskip("torch")
    assert len(set(entry(spellings, tmp_path))) == 1
    assert len(set(entry(spellings[::-1], tmp_path))) == 1


@pytest.mark.parametrize("value", NOBODY, ids=range(len(NOBODY)))
def test_what_tells_nobody_from_another_is_refused(value):
    with pytest.raises(DataError, match=r"^a person") as caught:
        person_id("a person", value)
    assert len(str(caught.value)) < 80
    with pytest.raises(DataError, match="Nothing was spent"):
        UserSlots([(value, np.zeros((2, 1)))], None).batch(0, 1)
    for use in (
        labels,
        lambda ids: first_rows(ids, 2, 1),
        lambda ids: replace(read_pairs(judged("ab")), persons=tuple(ids)),
    ):
        with pytest.raises(DataError, match="An entry of persons"):
            use([value, "a"])


@given(st.text(max_size=8), st.sampled_from(["NFC", "NFD"]), st.sampled_from(["", " ", "\ufeff"]))
def test_a_read_id_reads_as_itself_and_so_does_every_spelling(text, form, around):
    try:
        read = person_id("a person", text)
    except DataError:
        return
    assert person_id("a person", read) == read
    assert person_id("a person", around + unicodedata.normalize(form, text) + around) == read


def test_other_people_stay_others():
    others = ["1", "01", "1.0", "+1", "Ann", "ann", "a b", "ab", -1, 2]
    assert len({person_id("a person", other) for other in others}) == len(others)
