"""What a privatized file says of itself, in a file of its own beside it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino._files import read_json, sha256_of
from sordino.errors import DataError, UsageError
from sordino.preferences.private_pairs import label_loss
from sordino.privacy.conversions import flip_probability, randomized_response_epsilon
from sordino.privacy.guarantee import CAVEATS, REPLACE_ONE, Guarantee

__all__ = [
    "MANIFEST_FORMAT",
    "RANDOMIZED_RESPONSE",
    "Manifest",
    "digest_of_files",
    "manifest_path",
    "read_manifest",
    "stem",
]

MANIFEST_FORMAT = "sordino.manifest"
MANIFEST_VERSION = 2
RANDOMIZED_RESPONSE = "randomized-response"
_READABLE = {(RANDOMIZED_RESPONSE, unit, REPLACE_ONE) for unit in ("label", "person")}
_SLACK = 1e-9  # relative: numbers in a file are the nearest floats


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a privatized file says of itself: exactly these keys, no counts, no seed.

    ``flip_probability`` is the chance that an answer is not the judgment; ``epsilon`` is for
    one ``unit``: per label, or for all labels of one person together, a whole multiple of the
    loss of one; ``sha256`` is of the privatized file as it lies on disk. ``release_id`` is random:
    whatever has the same was drawn together, so that its loss counts once.
    """

    sha256: str
    release_id: str
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


def digest_of_files(manifests: Iterable[Manifest]) -> str:
    """Return one SHA-256 for many privatized files, in whatever order they are given."""
    together = "\n".join(sorted(manifest.sha256 for manifest in manifests))
    return hashlib.sha256(f"shards\n{together}".encode()).hexdigest()


def manifest_path(path: Path) -> Path:
    """Return where the manifest of a privatized file lies.

    Example:
        >>> manifest_path(Path("p.jsonl.gz")).name
        'p.manifest.json'
    """
    return path.with_name(f"{stem(path)}.manifest.json")


def stem(path: Path) -> str:
    """Return a file's name without ``.jsonl``, ``.jsonl.gz`` or ``.parquet``."""
    return path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".parquet")


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
    own = {"caveats", "release_id", "epsilon", "flip_probability"}
    try:
        result = Manifest(
            **{name: values[name] for name in wanted - own},
            caveats=_known_caveats(values["caveats"]),
            release_id=_validate.release_id("release_id", values["release_id"]),
            epsilon=_validate.positive("epsilon", values["epsilon"]),
            flip_probability=_validate.positive("flip_probability", values["flip_probability"]),
        )
        promise = result.guarantee
        flip_probability(result.epsilon)  # refuses what no coin keeps
    except (TypeError, ValueError, UsageError):
        promise = None
    if promise is None or not (
        isinstance(result.sha256, str) and isinstance(result.mechanism, str)
    ):
        raise DataError(f"{problem} has a field of a wrong type or value.")
    if (result.mechanism, promise.unit, promise.neighbors) not in _READABLE:
        raise DataError(
            f"{problem} names another mechanism, unit or relation than this sordino reads: "
            f"mechanism {RANDOMIZED_RESPONSE!r}, unit 'label' or 'person', and neighbors "
            "'REPLACE_ONE'."
        )
    ingested = "randomized-at-ingestion" in result.caveats
    if ingested != (result.trust == "central"):
        raise DataError(f"{problem} contradicts itself: trust and caveats disagree.")
    if promise.unit == "person" and "labels-only" not in result.caveats:
        raise DataError(
            f"{problem} contradicts itself: a promise about all labels of one person needs the "
            "caveat 'labels-only', because who answered what is in the file."
        )
    if not _is_kept(result):
        raise DataError(f"{problem} contradicts itself: epsilon and flip_probability disagree.")
    return result


def _is_kept(manifest: Manifest) -> bool:
    """Return whether the flips keep epsilon: once, or a whole number of times for a person."""
    if manifest.unit == "person":
        return _is_multiple(manifest.epsilon, manifest.flip_probability)
    label, flips = manifest.epsilon, manifest.flip_probability
    return math.isclose(flip_probability(label), flips, rel_tol=_SLACK) and (
        randomized_response_epsilon(label) >= label * (1 - _SLACK)
    )


def _is_multiple(epsilon: float, flips: float) -> bool:
    """Return whether a total is a whole multiple of what a coin on 64-bit words loses."""
    if not flips < 0.5 or not (flips * 2**64).is_integer():  # noqa: PLR2004 (a fair coin)
        return False
    times = epsilon / label_loss(flips)
    return 0.5 <= times <= 1 / _SLACK and math.isclose(times, round(times), rel_tol=_SLACK)  # noqa: PLR2004
