"""What is promised, in the forms that others read: a DpEvent, a registry record, a model card.

A form has no place for everything that a promise says. What it has no place for is written in words
beside it, and a form that would have to say more than is promised is refused.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from sordino import _validate
from sordino._markup import harmless
from sordino._version import __version__
from sordino.errors import PrivacyError, UsageError

from .accountants import noise_parameter, plain, pure_loss, samples
from .guarantee import (
    CAVEATS,
    REPLACE_ONE,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    event_to_row,
)
from .ledger import Ledger

if TYPE_CHECKING:
    import dp_accounting

Form = Literal["dp-event", "opendp-registry", "model-card"]
Counts = Mapping[Event, int]

TO_BE_FILLED_IN = "TO BE FILLED IN"  # what stands in a record where only the curator knows
_SAID = tomllib.loads(Path(__file__).with_name("exports.toml").read_text("utf-8"))

_UP = 1 + 1e-9  # more loss is always safe
_MOST_COPIES = 1000
_MOST_LOSS = 100.0


def dp_event(
    promised: Ledger | Guarantee,
) -> tuple[dp_accounting.DpEvent, dp_accounting.NeighboringRelation]:
    """Return what was done as an event of dp_accounting, and the relation to compose it under.

    The relation is the ledger's own where dp_accounting has a pair of distributions that loses
    exactly as much. It is REPLACE_ONE where a release may fail with its delta: only there
    dp_accounting has an event that fails. It says how to read the event, and does not change what
    is promised: that remains the change that ``Guarantee.change`` names.

    Args:
        promised: A ledger, of which everything spent is exported; or a guarantee, of which only
            ε and δ are known.

    Returns:
        The event, and dp_accounting's relation: ``PLDAccountant(relation)`` composes it.

    Raises:
        UsageError: Nothing was spent.
        PrivacyError: Randomness was simulated; a release does not cover the ledger's unit; or
            dp_accounting has no event that loses as much.

    Guarantee:
        At every δ the event composes to at least the ε that the ledger states, up to the ε of 80
        where it stops telling a failure from a large loss; randomness and trust are no part of an
        event. Shown by tests/soundness/test_exports.py.

    Source:
        docs/privacy.md, "Standard forms" (a dominating pair for each event).

    Example:
        >>> import sordino
        >>> promise = sordino.Guarantee(1.0, delta=0.0, unit="person",
        ...     neighbors=sordino.ADD_OR_REMOVE_ONE, trust="central")
        >>> dp_event(promise)[0]
        DiscreteLaplaceDpEvent(noise_parameter=1.0, sensitivity=1)
    """
    import dp_accounting as dp  # noqa: PLC0415 - slow

    promise = _promise(promised)
    own, size = promise.neighbors, promise.epsilon
    counts: Counts = {NonPrivateEvent(): 1}
    if isinstance(promised, Ledger):
        counts = promised.events
    elif math.isfinite(size):
        delta = promise.delta
        counts = {ApproximateEvent(size, delta) if delta > 0 else PureEvent(size): 1}
    if NonPrivateEvent() in counts:
        return dp.NonPrivateDpEvent(), dp.NeighboringRelation[own.name]
    fails = any(isinstance(event, ApproximateEvent) for event in counts)
    relation = REPLACE_ONE if fails else own
    found = [*_events_of(counts, own, relation)]
    whole = found[0] if len(found) == 1 else dp.ComposedDpEvent(found)
    return whole, dp.NeighboringRelation[relation.name]


def export(
    promised: Ledger | Guarantee, form: Form, *, title: str | None = None, said: Iterable[str] = ()
) -> str:
    """Return a promise in a standard form, as text to be written to a file.

    ``dp-event`` is JSON: the event of dp_accounting, the accountant and the relation to compose it
    with, and the promise. ``opendp-registry`` is YAML: a draft for the registry of deployments of
    OpenDP, in which what only the curator knows says ``TO BE FILLED IN``. ``model-card`` is the
    ``README.md`` of a model on the Hugging Face Hub, with the promise in its YAML front.

    Args:
        promised: A ledger, for everything that was spent on it; or one guarantee.
        form: ``"dp-event"``, ``"opendp-registry"`` or ``"model-card"``.
        title: What the export is called; the data set's name by default.
        said: Sentences of the user's own, which the export carries.

    Raises:
        UsageError: The form is unknown, or nothing was spent.
        PrivacyError: A simulated promise, which protects nobody, was asked for as an event or as a
            record (a model card says so instead); a record of no protection; or as in
            :func:`dp_event`.

    Guarantee:
        No form says less than ε and δ, and each says in words what it has no field for: the unit
        ``"label"``, the relation, who saw the raw judgments, and every caveat. Shown by
        tests/soundness/test_exports.py.

    Source:
        The registry's schema: github.com/opendp/deployments-registry-data.

    Example:
        >>> import json, sordino
        >>> promise = sordino.Guarantee(1.0, delta=0.0, unit="label",
        ...     neighbors=sordino.REPLACE_ONE, trust="local")
        >>> json.loads(export(promise, "dp-event"))["compose_with"]["accountant"]
        'PLDAccountant'
    """
    _validate.one_of("form", form, get_args(Form))
    promise = _promise(promised, card=form == "model-card")
    name = title or getattr(promised, "data", "") or "A private release"
    words = [*_words(promised, promise), *said]
    if form == "opendp-registry":
        return _block(_record(promised, promise, name, words))
    if form == "model-card":
        return model_card(promise, title=name, said=words)
    event, relation = dp_event(promised)
    read = (
        "The event loses at least as much as the releases when dp_accounting composes it under "
        f"{relation.name}, and under no other relation. What one change of the data is, the "
        "promise says."
    )
    value = {
        "format": "sordino.dp_event",
        "version": 1,
        "event": _plain(event.to_named_tuple()),
        "compose_with": {
            "library": "dp_accounting",
            "accountant": "PLDAccountant",
            "neighboring_relation": relation.name,
        },
        "promise": {**promise.to_dict(), "caveats": list(promise.caveats)},
        "said": [read, *words],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _promise(promised: Ledger | Guarantee, *, card: bool = False) -> Guarantee:
    """Return what is promised; refuse where nothing is, and a seed unless a card tells of it."""
    promise = promised if isinstance(promised, Guarantee) else promised.total()
    if promise is None:
        raise UsageError(
            "Nothing was spent on this ledger, so there is no promise. Nothing was exported."
        )
    account = promised.accounts()[promised.unit] if isinstance(promised, Ledger) else None
    if account is not None and account.uncovered:
        raise PrivacyError(
            f"There is no promise to one {account.unit}: {account}. Nothing was exported. Export "
            "what is promised to a smaller unit: ledger.counting('label')."
        )
    if card:
        return promise
    if promise.simulated:
        raise PrivacyError(
            "Randomness was simulated: whoever knows the seed can undo it, so nothing is promised. "
            "Nothing was exported. Run again without a seed; a model card can be written of it, "
            "and says that nothing is private."
        )
    return promise


def _events_of(
    counts: Counts, own: NeighboringRelation, relation: NeighboringRelation
) -> Iterable[Any]:
    """Yield events that PLDAccountant composes to at least what was lost."""
    # Source: docs/privacy.md, "Standard forms". The one pair of pure releases that dominates all
    # others has two answers: that of a discrete Laplace of sensitivity 1, or of a coin.
    from dp_accounting import dp_event as dp  # noqa: PLC0415 - slow

    coins: Counter[RandomizedResponseEvent] = Counter()
    pure: Counter[float] = Counter()
    failures: Counter[float] = Counter()
    for given, times in counts.items():
        event, n = plain(given, times, own, least_chance=1.0)
        if isinstance(event, GaussianEvent | PoissonGaussianEvent):
            yield from _noised(event, n, relation)
        elif isinstance(event, RandomizedResponseEvent) and relation == own:
            coins[event] += n
        elif isinstance(event, BoundedRangeEvent):
            pure[event.bounded_range] += n * event.draws
        elif isinstance(event, RandomizedResponseEvent | PureEvent | ApproximateEvent):
            pure[pure_loss(event, own)] += n
            failures[getattr(event, "delta", 0.0)] += n
    del pure[0.0], failures[0.0]
    if relation == REPLACE_ONE:
        coins.update({RandomizedResponseEvent(loss): n for loss, n in pure.items()})
    else:
        yield from (_repeated(dp.DiscreteLaplaceDpEvent(loss, 1), n) for loss, n in pure.items())
    several = coins.total() + failures.total()
    lost = sum(coin.epsilon * n for coin, n in coins.items())
    if several > _MOST_COPIES or lost > (_MOST_LOSS if failures else 7 * _MOST_LOSS):
        raise PrivacyError(
            "dp_accounting drops how often a coin was flipped, so that each flip is an event of "
            f"its own, and {several} of a loss of {lost:g} together are too many. Nothing was "
            "exported. Export the guarantee instead: dp_event(ledger.total())."
        )
    for coin, n in coins.items():  # one by one: PLDAccountant of dp_accounting 0.6.0 drops counts
        yield from n * [dp.RandomizedResponseDpEvent(noise_parameter(coin), coin.categories)]
    for delta, n in failures.items():
        # With chance delta the answer names its input, among so many that nobody else would name
        # it: a loss so large that whatever else was lost cannot hide it.
        kept = 1 - delta * _UP
        answers = math.ceil(math.exp(_MOST_LOSS + 2 * lost) / (1 - kept))
        yield from n * [dp.RandomizedResponseDpEvent(kept, answers)]


def _noised(
    event: GaussianEvent | PoissonGaussianEvent, n: int, relation: NeighboringRelation
) -> Iterable[Any]:
    from dp_accounting import dp_event as dp  # noqa: PLC0415 - slow

    if isinstance(event, PoissonGaussianEvent):  # under REPLACE_ONE they lose the most
        for (noise, chance), steps in samples({event: n}).items():
            yield _repeated(dp.PoissonSampledDpEvent(chance, dp.GaussianDpEvent(noise)), steps)
    elif event.mu > 0 and relation == REPLACE_ONE:
        # RdpAccountant forgets REPLACE_ONE for Gaussians; samples under it, it refuses
        noise = 2 / (event.mu * math.sqrt(n) * _UP)
        yield dp.PoissonSampledDpEvent(1.0, dp.GaussianDpEvent(noise))
    elif event.mu > 0:
        yield _repeated(dp.GaussianDpEvent(1 / (event.mu * _UP)), n)


def _repeated(event: Any, n: int) -> Any:
    import dp_accounting as dp  # noqa: PLC0415 - slow

    return event if n == 1 else dp.SelfComposedDpEvent(event, n)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _words(promised: Ledger | Guarantee, promise: Guarantee) -> list[str]:
    """Return in sentences what no form has a field for, and of which releases the promise is."""
    relation = promise.neighbors.name
    said = [
        f"The unit is {_SAID['unit'][promise.unit]}.",
        f"One change: {promise.change} ({relation}). {_SAID['relation'][relation]}",
        _SAID["trust"][promise.trust],
        *(f"{name}: {CAVEATS[name]}" for name in promise.caveats),
    ]
    if isinstance(promised, Guarantee):
        return said
    digest, rows = promised.head
    one = f"the data set {promised.data!r}, and of no other," if promised.data else "everything"
    one = one if len(promised.data_sets) > 1 else "everything"
    said.append(f"It is of {one} on one ledger together: head {digest} after {rows} rows.")
    said += [f"To one {unit}, {account}." for unit, account in promised.accounts().items()]
    if received := sum(row.kind == "receive" for row in promised.rows):
        said.append(
            f"{received} more files arrived already private: what they promise stands in their "
            "manifests, and is no part of this."
        )
    return said


def _record(
    promised: Ledger | Guarantee, promise: Guarantee, name: str, words: list[str]
) -> dict[str, Any]:
    """Return a draft of a record of OpenDP's registry of deployments."""
    if math.isinf(promise.epsilon):
        raise PrivacyError("There is no finite epsilon, so no record of it. Nothing was exported.")
    done, releases = [f"Made with sordino {__version__}"], 1
    if isinstance(promised, Ledger):
        releases = len(promised.spends)
        for event, n in promised.events.items():
            kind, numbers = event_to_row(event)
            told = ", ".join(f"{key} {value!r}" for key, value in numbers.items())
            done.append(f"{n} × {kind} ({told})")
    deployment = deepcopy(_SAID["record"])
    deployment["basic"]["name"] = name
    if promise.delta:
        deployment["dp_variant"]["variant_name"] = "Approximate DP"
    if promise.hides_texts:
        del deployment["dp_variant"]["unprotected_quantities"]
    sizes = {"epsilon": promise.epsilon} | ({"delta": promise.delta} if promise.delta else {})
    deployment["privacy_loss"] = {
        "privacy_unit": promise.unit,
        "privacy_unit_details": " ".join(words[:2]),
        "privacy_parameters": sizes,
        "privacy_parameters_details": " ".join(words[3:]) or "No caveats.",
    }
    model = {"model_name": promise.trust.capitalize(), "model_name_details": words[2]}
    model |= {"release_type": "One release"} if releases == 1 else {}
    deployment["deployment_model"] |= model
    deployment["implementation"]["mechanisms"] = "; ".join(done) + "."
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "release"
    return {"url_slug": slug, "deployment": deployment}


def model_card(
    promise: Guarantee,
    *,
    title: str,
    said: Iterable[str] = (),
    kind: str | None = None,
    usage: str = "",
    front: Mapping[str, Any] = MappingProxyType({"library_name": "sordino"}),
) -> str:
    """Return a card of the Hub, of a model or a data set, whose front carries the promise."""
    # Whoever reads only the front must not take what a seed undoes for a promise.
    protects = not promise.simulated and math.isfinite(promise.epsilon)
    sizes = promise.to_dict() | ({} if protects else {"epsilon": "inf"})
    tags = ["sordino", *(["differential-privacy"] if protects else []), *([kind] if kind else [])]
    head = {**front, "tags": tags, "privacy": {**sizes, "caveats": list(promise.caveats)}}
    lines = [
        "---",
        *(f"{name}: {_flow(value)}" for name, value in head.items()),
        "---",
        "",
        f"# {' '.join(harmless(title).split())}",
        *["", "**SIMULATED: a seed was used, so nothing here is private.**"] * promise.simulated,
        *(["", f"**Too weak a promise.** {weak}"] if (weak := promise.weakness(None)) else []),
        *(["", f"A {kind} trained on private preferences with Sordino."] if kind else []),
        "",
        f"**Promise:** {promise}. One change: {promise.change}.",
        "",
        *(f"- `{name}`: {CAVEATS[name]}" for name in promise.caveats),
        *(f"- {line}" for line in said if line.split(":")[0] not in promise.caveats),
        *(["", "## How to use it", "", "```python", usage, "```"] if usage else []),
    ]
    return "\n".join(lines) + "\n"


def _flow(value: object) -> str:
    """Return a value in YAML on one line, as readers of YAML 1.1 and 1.2 alike take it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(str(k))}: {_flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, float):  # 1e-06 is a text in YAML 1.1
        shown = repr(value).replace("inf", ".inf").replace("nan", ".nan")
        return shown if "." in shown else shown.replace("e", ".0e")
    if isinstance(value, str):
        return json.dumps(harmless(value), ensure_ascii=False)
    return json.dumps(value)


def _block(value: Mapping[str, Any], indent: str = "") -> str:
    """Return nested tables in YAML, a line for each name; what is not a table is on its line."""
    parts = [
        f"{indent}{name}:\n{_block(part, indent + '  ')}"
        if isinstance(part, Mapping)
        else f"{indent}{name}: {_flow(part)}\n"
        for name, part in value.items()
    ]
    return "".join(parts)
