"""JSON Lines in and out, and the manifest that lies beside every privatized file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sordino import _validate
from sordino._files import UNPACKING_ERRORS, explained, read_json, sha256_of, unpacked
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.records import Record, parse_record
from sordino.privacy.conversions import flip_probability, randomized_response_epsilon
from sordino.privacy.guarantee import CAVEATS, REPLACE_ONE, Guarantee

__all__ = [
    "MANIFEST_FORMAT",
    "Manifest",
    "Progress",
    "manifest_path",
    "read_manifest",
    "read_mappings",
    "read_records",
    "to_line",
]

MANIFEST_FORMAT = "sordino.manifest"
MANIFEST_VERSION = 1
RANDOMIZED_RESPONSE = "randomized-response"
_READABLE = (RANDOMIZED_RESPONSE, "label", REPLACE_ONE)
_LONGEST_LINE = 1 << 24


@runtime_checkable
class Progress(Protocol):
    """What a long read reports to: how many bytes of the file have been taken in."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of bytes read so far and of the size of the file."""


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of every line that is not blank; ``.gz`` is unpacked.

    Raises:
        DataError: The file is no valid gzip, or one line is larger than 16 MiB.
        FileSystemError: It cannot be read.
    """
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError("The input is a folder; give a file.")
    with explained("The input cannot be read"), path.open("rb") as raw:
        total = path.stat().st_size
        number = 0
        try:
            reader = unpacked(path, raw)
            while line := reader.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    break
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield number, line
                if progress and number % 1024 == 0:
                    progress(raw.tell(), total)
            else:
                return
        except UNPACKING_ERRORS:
            line = b""
    if line:
        raise DataError(f"line {number}: longer than 16 MiB; one record per line is expected.")
    raise DataError(f"after line {number}: the file is not valid gzip, or it was cut short.")


def read_mappings(
    path: Path, progress: Progress | None = None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line of a JSON Lines file.

    Raises:
        DataError: A line is not UTF-8 or not a JSON object, or there is none at all.
        FileSystemError: The file cannot be read.
    """
    empty = True
    for number, line in read_lines(path, progress):
        empty = False
        where = f"line {number}"
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            problem = "not valid UTF-8"
        except (ValueError, RecursionError):
            problem = "not valid JSON (one object per line is expected)"
        else:
            if isinstance(value, dict):
                yield where, value
                continue
            problem = "expected an object with named fields"
        del line
        raise DataError(f"{where}: {problem}.")
    if empty:
        raise DataError("The input is empty: no record in it.")


def read_records(
    path: Path, *, person_field: str = "person", progress: Progress | None = None
) -> Iterator[Record]:
    """Yield every record of a JSON Lines file in canonical order, one at a time.

    Raises:
        DataError: A record cannot be used, or some are raw and some privatized, or some have a
            person id and some do not.
        FileSystemError: The file cannot be read.
    """
    rows = read_mappings(path, progress)
    yield from alike(parse_record(row, where, person_field=person_field) for where, row in rows)


def alike(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records; refuse the first that is of another kind than the first one.

    Raises:
        DataError: Raw and privatized are mixed, or person ids are given for some only.
    """
    first: Record | None = None
    for record in records:
        first = first or record
        if record.privatized != first.privatized:
            raise DataError(f"{record.where}: raw judgments and randomized answers in one file.")
        if (record.person is None) != (first.person is None):
            raise DataError(
                f"{record.where}: a person id is given for some records and not for others."
            )
        yield record


def to_line(record: Record, answer: int) -> bytes:
    """Return one privatized record as a line; nothing else of the raw row is kept."""
    row: dict[str, Any] = {
        "prompt": record.prompt,
        "first": record.first,
        "second": record.second,
        "answer": int(answer),
    }
    if record.person is not None:
        row["person"] = record.person
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a privatized file says of itself: exactly these keys, no counts, no seed.

    ``flip_probability`` is the chance that an answer is not the judgment; ``epsilon`` is per
    label; ``sha256`` is of the privatized file as it lies on disk.
    """

    sha256: str
    mechanism: str
    epsilon: float
    flip_probability: float
    unit: str
    neighbors: str
    trust: str
    caveats: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON holds it."""
        head = {"format": MANIFEST_FORMAT, "version": MANIFEST_VERSION}
        return head | asdict(self) | {"caveats": list(self.caveats)}

    @property
    def guarantee(self) -> Guarantee:
        """Return the promise; a seed, if one was used, shows as a caveat in the file."""
        randomness = "simulated" if "simulated" in self.caveats else "system"
        values = asdict(self) | {"delta": 0.0, "randomness": randomness}
        return Guarantee.from_dict(values, self.caveats)


def manifest_path(path: Path) -> Path:
    """Return where the manifest of a privatized file lies.

    Example:
        >>> manifest_path(Path("p.jsonl.gz")).name
        'p.manifest.json'
    """
    return path.with_name(f"{stem(path)}.manifest.json")


def stem(path: Path) -> str:
    """Return a file's name without ``.jsonl`` or ``.jsonl.gz``."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def read_manifest(path: Path, manifest: Path | None = None) -> Manifest:
    """Return the manifest of a privatized file, checked against the file itself.

    Args:
        path: The privatized file.
        manifest: The manifest, if it does not lie beside the file under its usual name.

    Raises:
        DataError: There is none, it is malformed, it contradicts itself, or it belongs to
            another file. Nothing can be promised of such a file.
    """
    manifest = manifest or manifest_path(path)
    problem = "These answers cannot be used without their manifest"
    if not os.path.isfile(manifest):  # noqa: PTH113 (as above)
        raise DataError(
            f"{problem}: there is no {manifest.name} beside the file. Without it nobody knows how "
            "the answers were randomized."
        )
    values = read_json(manifest, kind=MANIFEST_FORMAT, version=MANIFEST_VERSION, problem=problem)
    result = _checked(values, f"{problem}: {manifest.name}")
    if result.sha256 != sha256_of(path):
        raise DataError(f"{problem}: {manifest.name} is of another file (its sha256 differs).")
    return result


def _known_caveats(names: Any) -> tuple[str, ...]:
    """Return a list of caveats; one that nobody can explain is no promise.

    Raises:
        TypeError: It is not a list of names that this version knows.
    """
    if not isinstance(names, list) or not all(name in CAVEATS for name in names):
        raise TypeError
    return tuple(names)


def _checked(values: dict[str, Any], problem: str) -> Manifest:
    """Return a manifest whose fields are present, well-typed and consistent."""
    wanted = set(Manifest.__dataclass_fields__)
    if set(values) - {"format", "version"} != wanted:
        raise DataError(f"{problem} must have exactly the fields {sorted(wanted)}.")
    promise: Guarantee | None = None
    flips: float | None = None
    try:
        result = Manifest(
            **{name: values[name] for name in wanted - {"caveats", "epsilon", "flip_probability"}},
            caveats=_known_caveats(values["caveats"]),
            epsilon=_validate.positive("epsilon", values["epsilon"]),
            flip_probability=_validate.positive("flip_probability", values["flip_probability"]),
        )
        promise = result.guarantee
        flips = flip_probability(result.epsilon)
    except (TypeError, ValueError, UsageError):
        promise = None
    if promise is None or flips is None or not isinstance(result.sha256, str):
        raise DataError(f"{problem} has a field of a wrong type or value.")
    if (result.mechanism, promise.unit, promise.neighbors) != _READABLE:
        raise DataError(
            f"{problem} names mechanism {result.mechanism!r} with unit {result.unit!r} and "
            f"neighbors {result.neighbors!r}; this sordino reads {RANDOMIZED_RESPONSE!r} with "
            "unit 'label' and neighbors 'REPLACE_ONE'."
        )
    ingested = "randomized-at-ingestion" in result.caveats
    if ingested != (result.trust == "central"):
        raise DataError(f"{problem} contradicts itself: trust and caveats disagree.")
    if not math.isclose(flips, result.flip_probability, rel_tol=1e-9) or (
        randomized_response_epsilon(result.epsilon) < result.epsilon * (1 - 1e-9)
    ):
        raise DataError(f"{problem} contradicts itself: epsilon and flip_probability disagree.")
    return result
