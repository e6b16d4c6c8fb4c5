"""A raw file in, a privatized file and its manifest out, in constant memory.

Files of answers that are paid for, and how they appear: all of them, also after a crash.

Before the first appears, what was asked is noted beside them. A run that asks the same and finds
the note lets the rest appear: the same bytes, for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Integer

from sordino import _random
from sordino._files import (
    atomic_draft,
    clear,
    explained,
    read_json,
    refuse_output,
    sha256_of,
    to_json,
    write_json,
)
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunks import Chunks
from sordino.preferences.comparisons import PublicDigest, kept
from sordino.preferences.files import Progress, read_records, separator, to_line
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.pairs import (
    RANDOMIZED_RESPONSE,
    Manifest,
    digest_of_files,
    manifest_path,
    read_manifest,
    stem,
)
from sordino.preferences.records import Record
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privacy.ledger_chain import digest_of_json

from .randomization import (
    Randomization,
    Survey,
    memo_keys,
    nothing_stored,
    record_release,
    refuse_unlinked,
    rows_on_disk,
)

_BATCH = 8192
_BATCH_CHARACTERS = 1 << 23


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """How a raw file is read: the same for the survey and for the release."""

    drop_identical: bool = False
    person_field: str = "person"

    def records(
        self, source: Path, digest: PublicDigest, progress: Progress | None
    ) -> Iterator[list[Record]]:
        """Yield batches of the raw records that carry a preference."""
        rows = kept(
            read_records(source, person_field=self.person_field, progress=progress),
            digest,
            drop_identical=self.drop_identical,
        )
        for batch in _batches(rows):
            if batch[0].privatized:
                raise UsageError(
                    "These answers are randomized already; use them as they are (sordino fit, "
                    "sordino align)."
                )
            yield batch


def _batches(rows: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield records in batches, limited in number and in characters, so that memory is bounded."""
    batch: list[Record] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row.size
        if len(batch) >= _BATCH or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class Surveyed:
    """What one reading of a raw file found: its public fields in numbers, and their digest."""

    survey: Survey
    public_digest: str


def survey_file(
    source: Path,
    settings: FileSettings,
    memo: AnswerMemo | None,
    progress: Progress | None = None,
    cap: int | None = None,
) -> Surveyed:
    """Return what a raw file's public fields say; nothing is spent."""
    survey, digest = Survey(memo, cap=cap), PublicDigest()
    for batch in settings.records(source, digest, progress):
        survey.add([row.key for row in batch], _persons(batch) if memo else None)
    if not survey.n:
        raise DataError("No pair is left: every record has identical answers.")
    survey.dropped = digest.dropped
    return Surveyed(survey, digest.hexdigest())


def plan_file(
    source: Path,
    randomization: Randomization,
    settings: FileSettings,
    *,
    data: str,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Surveyed]:
    """Return what :func:`privatize_file` would spend, after checking every record."""
    # Nothing on disk is touched: an unusable file leaves no ledger behind.
    with randomization.open_memo(linked=linked(source, settings), dry_run=True) as memo:
        found = survey_file(source, settings, memo, progress, randomization.cap)
        return randomization.plan(found.survey, found.public_digest, data=data), found


def count_labels(source: Path, settings: FileSettings, progress: Progress | None = None) -> int:
    """Return the largest number of different questions of one person in a raw file: public."""
    if not linked(source, settings):
        refuse_unlinked("a budget for each person")
    with AnswerMemo.scratch() as memo:
        survey_file(source, settings, memo, progress)
        return memo.counts(None).labels


def linked(source: Path, settings: FileSettings) -> bool:
    """Return whether the first record of a raw file has a person id."""
    if os.path.exists(source) and not (os.path.isfile(source) or os.path.isdir(source)):  # noqa: PTH110, PTH112, PTH113 (they never raise)
        raise UsageError("The input must be a file: it is read more than once. Nothing was done.")
    rows = read_records(source, person_field=settings.person_field)
    return next(rows).person is not None


def _persons(batch: Iterable[Record]) -> list[str]:
    """Return the person ids of linked records."""
    return [row.person or "" for row in batch]


def privatize_file(  # noqa: PLR0913 (each is one choice of the user)
    source: str | Path,
    destination: str | Path,
    mechanism: RandomizedResponse,
    *,
    ledger: Ledger,
    settings: FileSettings | None = None,
    cap: int | None = None,
    on_device: bool = False,
    simulate_seed: int | None = None,
    force: bool = False,
    surveyed: Surveyed | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Write a raw file's answers, randomized, with a manifest beside them; return the manifest.

    Guarantee:
        As :func:`privatize`, where the manifest states the promise of this file alone; the
        output holds prompt, first, second, answer and person only, in the order of the input,
        which counts as public.
    """
    # The file is read twice: once to refuse what cannot be used and to see what will be spent, once
    # to randomize. Memory does not grow with its size.
    source, destination = Path(source), Path(destination)
    refuse_table(destination)
    settings = settings or FileSettings()
    for path in (destination, manifest_path(destination)):
        refuse_output(path, force=force)
    randomization = Randomization.of(
        mechanism, ledger, on_device=on_device, simulate_seed=simulate_seed, cap=cap
    )
    with randomization.open_memo(linked=linked(source, settings)) as memo:
        if surveyed is None or memo is not None:
            surveyed = survey_file(source, settings, memo, _half(progress, 0), cap)
        promise = randomization.promise(surveyed.survey)
        with (  # opened first: nothing is spent on what cannot be written
            atomic_draft(destination, force=force) as out,
            atomic_draft(manifest_path(destination), force=force) as note,
        ):
            reservation = randomization.pay(surveyed.survey, surveyed.public_digest)
            randomization.choose(surveyed.survey)
            again, place = PublicDigest(), 0
            for batch in settings.records(source, again, _half(progress, 1)):
                used, answers = _answered(batch, randomization, memo, reservation, place)
                place += len(batch)
                out.file.writelines(map(to_line, used, answers))
            if again.hexdigest() != surveyed.public_digest:
                raise DataError("The input changed while it was read. Nothing was released.")
            out.finish()
            release_id = reservation.release_id if reservation else _random.new_release_id()
            manifest = manifest_of(mechanism, promise, sha256_of(out.path), release_id)
            note.file.write(to_json(manifest.to_dict()).encode())
            note.finish()
            paid = memo.release_ids() if memo else ()
            drawn = memo.drawn if memo else nothing_stored
            record_release(ledger, reservation, paid, manifest.sha256, drawn)
            clear(destination, force=force)  # no moment with a file and another's manifest
    return manifest


def refuse_table(destination: Path) -> None:
    """Refuse a name under which answers would be read as a table."""
    if separator(destination) is not None:
        raise UsageError(
            "A privatized file is JSON Lines: give it a name that ends in .jsonl or .jsonl.gz. "
            "Nothing was done."
        )


def _answered(
    batch: list[Record],
    randomization: Randomization,
    memo: AnswerMemo | None,
    reservation: Reservation | None,
    place: int,
) -> tuple[list[Record], Integer[np.ndarray, " n"]]:
    """Return the records of a batch that are used, and their answers."""
    if memo is not None:
        keys = memo_keys([row.key for row in batch], _persons(batch))
        rows = randomization.rows(keys, memo)
        batch, keys = [batch[index] for index in rows], [keys[index] for index in rows]
    labels = np.array([row.outcome for row in batch], dtype=np.int8)
    return batch, randomization.answers(
        labels, keys if memo else [], memo, reservation, place=place
    )


def manifest_of(
    mechanism: RandomizedResponse, promise: Guarantee, sha256: str, release_id: str
) -> Manifest:
    """Return what a privatized file says of itself."""
    return Manifest(
        sha256=sha256,
        release_id=release_id,
        mechanism=RANDOMIZED_RESPONSE,
        epsilon=promise.epsilon,
        flip_probability=mechanism.flip_probability,
        unit=promise.unit,
        neighbors=promise.neighbors.name,
        trust=promise.trust,
        caveats=promise.caveats,
    )


def _half(progress: Progress | None, part: int) -> Progress | None:
    """Return a progress callback for one of the two readings."""
    if progress is None:
        return None
    return lambda done, total: progress(done + part * total, 2 * total)


def default_ledger_path(destination: Path) -> Path:
    """Return where the spend of a privatized file is kept unless a ledger is given."""
    return destination.with_name(f"{stem(destination)}.spend.db")


DONE: Final = ".done"
"""How the folder of a run ends whose files have all appeared."""

_FORMAT: Final = "sordino.publication"
_VERSION: Final = 1
_NOTED: Final = "noted.json"
_BEGUN: Final = "begun.json"
_DRAWING: Final = "drawing.json"


def digest_of_request(chunks: Chunks, randomization: Randomization) -> str:
    """Return one SHA-256 for which files are to be answered, and how; nothing of what they hold."""
    # It outlives a run that is killed, so neither their size nor their time may be in it.
    request = {
        "files": list(dict.fromkeys(chunk.path for chunk in chunks.chunks)),
        "layout": chunks.layout,
        "dimension": chunks.dimension,
        "person_field": chunks.person_field,
        "drop_identical": chunks.drop_identical,
        "settings": randomization.memo_settings,
        "unit": randomization.unit,
        "cap": randomization.cap,
        "entropy": repr(randomization.entropy),  # with its seed, if it has one
    }
    return digest_of_json(request)


def note_files(work: Path, request: str, manifests: Mapping[str, Manifest], *, force: bool) -> None:
    """Write what each file says of itself, and then what they answer."""
    for name, manifest in manifests.items():
        write_json(manifest_path(work / name), manifest.to_dict(), force=True)
    content = {"format": _FORMAT, "version": _VERSION, "request": request, "force": force}
    write_json(work / _NOTED, content, force=True)


def is_drawing(work: Path, request: str) -> bool:
    """Return whether a folder of a run holds answers to a request, as far as they were drawn."""
    return _request(work / _DRAWING) == request


def bind(work: Path, request: str, entry: str) -> None:
    """Tie what will be drawn in a folder of a run to the entry that pays; other draws go."""
    content = {"format": _FORMAT, "version": _VERSION, "request": request, "entry": entry}
    with explained("The folder for the answers cannot be written"):
        known = (work / _DRAWING).exists() and json.loads((work / _DRAWING).read_bytes())
        if known != content:
            for path in work.iterdir():
                path.unlink()
            write_json(work / _DRAWING, content)


def noted_request(work: Path) -> str | None:
    """Return which request a folder of a run answers, if the run got as far as to note it."""
    for name in (_NOTED, _BEGUN):
        if (work / name).exists():
            return _request(work / name)
    return None


def _request(path: Path) -> str | None:
    """Return what a note says; None if it is none."""
    try:
        found = read_json(path, kind=_FORMAT, version=_VERSION, problem="No note")["request"]
    except (DataError, FileSystemError, KeyError):
        return None
    return found if isinstance(found, str) else None


def has_begun(work: Path) -> bool:
    """Return whether some files appeared already, and not all."""
    return (work / _BEGUN).exists()


def published(
    work: Path, folder: Path, names: Iterable[str], ledger: Ledger
) -> tuple[Manifest, ...]:
    """Return the manifests of files of which some may have appeared and the others are made."""
    # There are none if one is missing or is not what its manifest says, or if the ledger does not
    # say that just these were released.
    try:
        manifests = tuple(_manifest(work / name, folder / name) for name in names)
    except (DataError, FileSystemError):
        return ()
    artifact = digest_of_files(manifests)
    released = (
        json.loads(row.payload).get("artifact")
        for row in rows_on_disk(ledger)
        if row.kind in {"commit", "repeat"}
    )
    return manifests if artifact in released else ()


def _manifest(made: Path, final: Path) -> Manifest:
    """Return what a file says of itself, checked, wherever the two are by now."""
    path = made if made.exists() else final
    note = manifest_path(made)
    return read_manifest(path, note if note.exists() else manifest_path(final))


def publish(work: Path, folder: Path, names: Iterable[str]) -> None:
    """Let all files appear that have not, each whole and after its manifest."""
    # The folder of the run is then called as one of which nothing is needed.
    reason = None
    try:
        note = next(work / name for name in (_NOTED, _BEGUN) if (work / name).exists())
        force = json.loads(note.read_bytes()).get("force") is True
        if (work / _NOTED).exists():
            (work / _NOTED).replace(work / _BEGUN)
        for name in names:
            _show(work / name, folder / name, force=force)
        work.rename(work.with_suffix(DONE))  # nothing is left to do, wherever this is killed
    except OSError as error:
        reason = error.strerror or type(error).__name__
    if reason is not None:
        raise FileSystemError(
            f"The folder for the answers cannot be written ({reason}). Some files may be missing "
            "there. They are made and paid for: give the same command again."
        )


def _show(made: Path, final: Path, *, force: bool) -> None:
    """Let one file appear, unless it did."""
    if made.exists():
        clear(final, force=force)  # no moment with a file and another's manifest
        if manifest_path(made).exists():
            manifest_path(made).replace(manifest_path(final))
        made.replace(final)
