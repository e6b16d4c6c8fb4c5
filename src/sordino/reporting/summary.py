"""What a report says, as one plain dict: promise, spend, quality, caveats, provenance.

Everything in it was already released; building it reads no raw judgment and spends nothing. What
was foreseen before anything was spent, accuracy against ε from sizes alone, stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Any

from sordino._version import __version__
from sordino.auditing.findings import Audit
from sordino.errors import DataError, PrivacyError
from sordino.privacy.guarantee import CAVEATS, DECLARED_DISJOINT, Guarantee
from sordino.reporting.audits import describe_audits
from sordino.reporting.wording import (
    SAID,
    WORDS,
    Json,
    Rows,
    at_least,
    at_most,
    both_ends,
    describe_guarantee,
    describe_ledger,
    describe_mechanism,
    describe_metrics,
    hides_ballots,
    is_noised_sum,
    is_of_rankings,
    judged,
    number_rows,
    percent,
    plain,
    read_guarantee,
    real,
    whole,
)
from sordino.rewards.metrics import REACH

from .leaderboard import describe_leaderboard
from .result import MEANINGLESS, WEAK, judge

_TINY = 0.001  # chances below it, and above its complement, are not written out


def _describe_fit(reward: Json | None) -> Rows:
    """Return how the reward was fitted, as names and sentences; none if it is not told."""
    if reward is None or not (method := str(reward.get("method") or "")):
        return []
    noised, of_ballots = is_noised_sum(method), hides_ballots(method)
    of_sum = SAID["sum_of_ballots"] if of_ballots else SAID["sum_of_labels"]
    rows = [["Likelihood", of_sum if noised else WORDS["methods"].get(method, method)]]
    asked = reward.get("method_asked")
    if asked == "auto" and method in WORDS["chosen"]:
        rows.append(["Chosen", WORDS["chosen"][method]])
    elif asked not in {None, "auto"}:
        rows.append(["Chosen", "By the user."])
    if "weight_standard_error" in reward:
        error = real("reward.weight_standard_error", reward["weight_standard_error"])
        noise = "noise" if noised else "randomization"
        what = "ballots" if noised and of_ballots else "pairs"
        why = WORDS["no_standard_errors"].get(method, "they are made for up to 1,024 features.")
        told = (
            f"Not available: {why}"
            if error is None
            else f"Half of the weights have one below {plain(error)} (approximate, for many "
            f"{what}; the {noise} is counted in)."
        )
        rows.append(["Standard errors", told])
    return rows


def _describe_class(among: Json | None) -> Rows:
    """Return which candidates there are, which was chosen, and what the others lack."""
    if among is None:
        return []
    (name, most), *others = among["likeliest"]
    behind = [f"{other} (−{plain(most - less)})" for other, less in others]
    rows = [["Chosen", f"{name}, of {whole(among['candidates'])} candidates."]]
    if behind:
        told = f"{_listed(behind, _NAMED)}; in brackets, how much worse they fit the answers."
        rows.append(["Next", told])
    if (possible := real("class.possible", among.get("possible"))) is not None:
        told = f"{whole(possible)} of {whole(among['candidates'])} candidates may be the true one."
        rows.append(["Confidence set", told])
    return rows


def _describe_online(told: Json | None) -> Rows:
    """Return what was asked in rounds, and how the questions were chosen."""
    if told is None:
        return []
    asked, rounds = whole(told["asked"]), whole(told["rounds"])
    rows = [["Rounds", f"{rounds}; in {asked} of them both answers differed, and one was asked."]]
    rule = f"{told['exploration'].capitalize()}, by estimates of randomized answers alone"
    proved = "; the bonus is smaller than the proved one, a heuristic" * bool(told["heuristic"])
    rows.append(["Questions", f"{rule}{proved}. Policies changed {whole(told['refits'])} times."])
    if (regret := real("online.regret", told.get("regret"))) is not None:
        rows.append(["Regret", f"{plain(regret)} in all rounds together; its world is made up."])
    return rows


def _origin(name: str, source: Json, known: Collection[str]) -> str:
    """Return where texts come from; refuse what is not known to be allowed."""
    value = source.get("source")
    if value not in known:
        raise DataError(
            f"{name}.source must be one of {', '.join(map(repr, known))}: texts of unknown origin "
            "are not used. No report was made."
        )
    return str(value)


def _describe_decisive(source: Json | None, *, texts_are_public: bool) -> dict[str, Any] | None:
    if source is None:
        return None
    origin = _origin("decisive", source, WORDS["origins"])
    if origin == "comparisons" and not texts_are_public:
        raise PrivacyError(
            "decisive.source is 'comparisons', but the promise covers the texts, so their spread "
            "may not be shown. No report was made. Take the spread of public pairs."
        )
    rows: list[dict[str, Any]] = []
    for row in source.get("rows") or ():
        told = {key: real(f"decisive.{key}", row.get(key)) for key in ("weight", "effect")}
        if told["effect"] is not None:
            texts = {  # with the sign, in two digits that count
                f"{key}_text": "—" if x is None else f"{'+' if x > 0 else ''}{plain(x, 2)}"
                for key, x in told.items()
            }
            name = str(row.get("name") or "unnamed")
            rows.append({"name": name, **texts, "effect": told["effect"]})
    if not rows:
        return None
    total = real("decisive.features", source.get("features"))
    return {
        "rows": rows,
        "origin": WORDS["origins"][origin],
        "total": None if total is None else whole(total),
        "groups": any(row["name"].startswith("word group ") for row in rows),
    }


def _describe_examples(source: Json | None) -> dict[str, Any] | None:
    """Return examples and where their texts come from, or None if there are none."""
    # One that holds an address, or lacks a number, is left out.
    if source is None or not source.get("rows"):
        return None
    origin = _origin("examples", source, ("public", "released"))
    rows = []
    for row in source["rows"]:
        answers = [_answer(answer) for answer in row["answers"]]
        texts = [str(row["prompt"]), *(str(answer["text"]) for answer in row["answers"])]
        if None not in answers and not any("://" in text for text in texts):
            rows.append({"prompt": texts[0], "answers": answers})
    return {"rows": rows, "origin": WORDS["origins"][origin]} if rows else None


def _answer(answer: Json) -> dict[str, Any] | None:
    before, after = (real(f"examples.{key}", answer.get(key)) for key in ("reference", "policy"))
    if before is None or after is None:
        return None
    return {
        "text": str(answer["text"]),
        "reference": before,
        "reference_text": _chance(before),
        "policy": after,
        "policy_text": _chance(after),
    }


def _chance(value: float) -> str:
    """Return a probability as a percentage that says 0 or 100 only where it is."""
    if 0 < value < _TINY:
        return f"under {percent(_TINY)}"
    return f"over {percent(1 - _TINY)}" if 1 - _TINY < value < 1 else percent(value)


def _describe_confidence(policy: Json | None) -> dict[str, Any] | None:
    """Return what a policy makes of the reward's uncertainty, as names and sentences."""
    # Where texts are private there is no measure of it, and the policy's settings are all.
    source = (policy or {}).get("pessimism")
    if source is None and policy is not None and policy.get("confidence") is not None:
        source = policy
    if source is None:
        return None
    level, scale = (real(f"pessimism.{key}", source.get(key)) for key in ("confidence", "scale"))
    heuristic = bool(source.get("heuristic")) or (scale is not None and scale < 1)
    kind = str(source.get("kind") or "")
    rows = [["Kind", WORDS["pessimism"].get(kind, kind)]] if kind else []
    if level is not None:
        share = f"{at_most(float(Decimal(repr(level)) * 100), 6)}%"
        factor = "smaller than" if scale is None else f"{at_most(scale)} times"
        told = SAID["heuristic" if heuristic else "proved"]
        rows.append(["Confidence", told.format(factor=factor, share=share)])
    if effect := source.get("effect"):
        rows.append(["Effect", str(effect["said"])])
    return {"heuristic": heuristic, "rows": rows + number_rows("unsure", source, "pessimism")}


_AT_ONCE = 20  # names that one sentence lists
_NAMED = 3  # of those whose order is open


def _describe_items(result: Json, *, records: bool) -> dict[str, Any] | None:
    """Return what everybody ranked, the best first, or None if there is nothing of the kind."""
    items = result.get("items") or ()
    chances = {
        str(row.get("name")): real("choices.probability", row.get("probability"))
        for row in (result.get("policy") or {}).get("choices") or ()
    }
    rows = [row for item in items if (row := _item(item, chances.get(str(item.get("name")))))]
    if not rows:
        return None
    known = all(row["ends"] for row in rows)
    notes = [SAID["private_ballots" if records else "too_few_ballots"]]
    if known:  # how much of the order is settled
        first, *others = rows
        near = [row["name"] for row in others if row["ends"][1] >= first["ends"][0]]
        told = SAID["not_ahead" if near else "ahead"]
        told = told.format(first=first["name"], near=_listed(near, _NAMED) if near else "")
        open_ = " Where intervals overlap, the order of these is not settled."
        notes = [told + open_, SAID["intervals"]]
    complete = "named-offered" in (result.get("caveats") or ())
    noised = is_noised_sum((result.get("mechanism") or {}).get("name"))
    if noised and is_of_rankings(result) and not complete:
        notes.append(SAID["short_ballots"])
    unknown = [str(item.get("name") or "unnamed") for item in items if item.get("worth") is None]
    if unknown:
        names = _listed(unknown, _AT_ONCE)
        notes.append(f"No data, because no ballot was offered it: {names}.")
    return {
        "rows": rows,
        "notes": notes,
        "intervals": known,
        "choices": any(chance is not None for chance in chances.values()),
    }


def _item(item: Json, chance: float | None) -> dict[str, Any] | None:
    """Return one item with its texts, or None if its worth is missing."""
    worth = real("items.worth", item.get("worth"))
    if worth is None:
        return None
    ends = both_ends("items.interval", item.get("interval"))
    text, interval = signed_worth(worth), " to ".join(map(signed_worth, ends or ()))
    return {
        "name": str(item.get("name") or "unnamed"),
        "worth": worth,
        "text": text,
        "ends": ends,
        "interval": interval or "—",
        "line": f"{text} ({interval}, 95%)" if ends else text,
        "chance": "—" if chance is None else percent(chance),
    }


def signed_worth(value: float) -> str:
    """Return a worth with its sign, in two decimals; what rounds to nothing has a plus."""
    return f"{value:+.2f}".replace("-0.00", "+0.00").replace("-", "−")


def _listed(names: Sequence[str], at_once: int) -> str:
    """Return names as a sentence lists them, those beyond a number counted only."""
    more = len(names) - at_once
    *most, last = [*names[:at_once], *([f"{whole(more)} more"] if more > 0 else [])]
    return f"{', '.join(most)} and {last}" if most else last


def _describe_training(result: Json) -> Rows:
    """Return how a policy was improved; nothing if none was."""
    if (trained := result.get("trained")) is None:
        return []
    mechanism = result.get("mechanism") or {}
    users, batches = trained["users"], trained["batches"]
    rows = [["Update", WORDS["updates"][trained["update"]]]]
    if mechanism.get("oracle"):
        rows.append(["Regression", str(mechanism["oracle"]).replace("-", " ").capitalize() + "."])
    explores = "The current policy." if trained["explores"] == "current" else "A fixed policy: "
    if trained["explores"] != "current":
        explores += f"no action is more than {at_least(trained['coverage'])} times as likely now."
    return [
        *rows,
        ["Batches", f"{whole(batches)}, each of {whole(users // batches)} persons."],
        ["What explored", explores],
        ["Projected", f"{whole(trained['projected'])} of {whole(batches)} updates."],
    ]


_SIZES = {"states": "states", "actions": "actions", "horizon": "steps of an episode"}


def _describe_plan(told: Json | None) -> Rows:
    """Return what a plan rests on, beside what its verdict says; nothing if nothing was planned."""
    if told is None:
        return []
    level = f"{at_most(float(Decimal(repr(told['confidence'])) * 100), 6)}%"
    if (share := told["radius_scale"]) < 1:
        level += f" by a heuristic ({plain(share)} of the proved radius)"
    lost = f"{plain(told['suboptimality'])} to the best policy, whatever it is."
    return [
        *([["At most lost", lost]] if told["vacuous"] else []),
        ["Gap", f"The worst case of no policy is more than {plain(told['gap'])} better."],
        ["Confidence", f"{level}, if the true weights have norm {plain(told['ball'])} or less."],
        ["World", ", ".join(f"{whole(told[name])} {what}" for name, what in _SIZES.items())],
    ]


_CONSTANT = {"accuracy": "How often the reward is right about an answer. Anybody would be right in"}
"""What is said instead of single answers, beside which the better constant stands."""
_SHARES = ("accuracy", "win_rate")


def _metrics(source: Json | None, *keys: str) -> list[dict[str, Any]]:
    """Return label, text and explanation of what was measured, also if it is too vague to tell."""
    told, metrics = source or {}, []
    for key in keys:
        label, _, explained = WORDS["metrics"][key].partition(": ")
        share, value = key in _SHARES, real(key, told.get(key))
        shown: Callable[[float], str] = percent if share else plain
        metric: dict[str, Any] = {"key": key, "label": label, "value": value, "guess": None}
        metric |= {"text": "too few to tell", "interval": None, "detail": ""}
        if key in _CONSTANT and (likes := real("likes", told.get("likes"))) is not None:
            metric["guess"] = best = max(likes, 1 - likes)
            explained = f"{_CONSTANT[key]} {percent(best)} by always saying the same."
        error = real(f"{key}_standard_error", told.get(f"{key}_standard_error"))
        ends = both_ends(key, told.get(f"{key}_interval"))
        if value is not None and error is not None:
            half = REACH * error
            low, high = value - half, value + half
            metric |= {
                "interval": [max(low, 0.0), min(high, 1.0)] if share else [low, high],
                "detail": f"± {f'{100 * half:.1f} points' if share else plain(half, 2)} (95%)",
            }
        elif ends:
            metric |= {"interval": ends, "detail": f"({' to '.join(map(shown, ends))}, 95%)"}
        if value is not None or f"{key}_reason" in told:
            text = metric["text"] if value is None else shown(value)
            metrics.append(metric | {"explained": explained, "text": text})
    return metrics


_BIN = ("predicted", "observed", "low", "high")  # a bin without all of these is left out


def summarize(
    result: Json,
    *,
    calibration: Sequence[Json] = (),
    ledger: Json | None = None,
    audits: Audit | Sequence[Audit] = (),
) -> dict[str, Any]:
    """Return everything that the report page says, as one JSON-like dict."""
    names = [str(name) for name in result.get("caveats") or ()]
    guarantee = read_guarantee("result.guarantee", result.get("guarantee"), tuple(names))
    counted = not guarantee.hides_counts
    words = describe_guarantee(guarantee, result)
    spend = describe_ledger(ledger, counted=counted) if ledger else None
    held = ((ledger or {}).get("accounts") or {}).get(guarantee.unit)
    if held and held["epsilon"] is None:  # another release tells what this one hides
        gap = f"One {guarantee.unit}, once all releases of the ledger are seen: {held['says']}."
        words["unprotected"] = [gap, *words["unprotected"]]
    facts = _facts(result, guarantee)
    data = str(ledger["data"]) if ledger and ledger.get("data") is not None else None
    simulated = guarantee.simulated or "simulated" in names or bool(spend and spend["simulated"])
    noise = str(result.get("noise") or "")
    reward, policy = result.get("reward"), result.get("policy")
    public, truth = result.get("public_evaluation"), result.get("truth")
    scores = ("accuracy", "negative_log_likelihood")
    told = _metrics(reward, *scores, "calibration_slope")
    pairs = real("public_evaluation.pairs", (public or {}).get("pairs"))
    accuracy = told[0] if told and told[0]["key"] == "accuracy" else None
    bins = [
        {key: real(f"calibration.{key}", row.get(key)) for key in (*_BIN, "pairs")}
        for row in calibration
    ]
    tried = describe_audits(audits) if audits else []
    verdict = judge(result)
    if any(audit["refuted"] for audit in tried):
        verdict = {"word": WEAK, "says": "An audit refutes what is claimed."}
    folded = verdict["word"] in MEANINGLESS
    board = result.get("leaderboard")
    title = "Privacy report" if board is None else "Leaderboard"
    # The total of a ledger may rest on a declaration.
    budget = ((ledger or {}).get("budget") or {}).get("caveats") or ()
    declared = [name for name in budget if name == DECLARED_DISJOINT]
    caveats = [*(["simulated"] if simulated else []), *names, *declared]
    page = {
        "format": "sordino.summary",
        "version": 1,
        "verdict": {**verdict, "folded": folded},
        "title": f"{title}: {data}" if data else title,
        "statement": _statement(result, facts),
        "simulated": simulated,
        "simulated_text": SAID["simulated"],
        "data": data,
        "facts": facts,
        "judged": judged(result),
        "rankings": is_of_rankings(result),
        "worths": _describe_items(result, records=guarantee.hides_texts),
        "leaderboard": None if board is None else describe_leaderboard(board),
        "trained": _describe_training(result),
        "planned": _describe_plan(result.get("plan")),
        "learned": _describe_class(result.get("class")) + _describe_online(result.get("online")),
        "noise": noise,
        "noise_text": WORDS["noise"].get(noise, ""),
        "guarantee": words,
        "mechanism": describe_mechanism(result, guarantee),
        "spend": spend,
        "metrics_note": describe_metrics(result, guarantee, measured=bool(told)),
        "reward": None if reward is None else {"metrics": told},
        "fit": _describe_fit(reward),
        "calibration": [
            row | {"pairs": row["pairs"] if counted else None}
            for row in bins
            if None not in [row[key] for key in _BIN]
        ],
        "prediction": _describe_prediction(
            result.get("utility"), None if folded else accuracy, facts
        ),
        "decisive": _describe_decisive(
            result.get("decisive"), texts_are_public=not guarantee.hides_texts
        ),
        "policy": None
        if policy is None
        else {"metrics": _metrics(policy, "win_rate", "kl", "temperature")},
        "confidence": _describe_confidence(policy),
        "examples": _describe_examples(result.get("examples")),
        "public": {
            "pairs": None if pairs is None else whole(pairs),
            "metrics": _metrics(public, *scores, "win_rate"),
            "truth": _metrics(truth, "kl_regret", "value", "best_value"),
        },
        "caveats": [
            {"name": name, "text": CAVEATS.get(name, "No sentence is on file for this caveat.")}
            for name in dict.fromkeys(caveats)
        ],
        "provenance": _provenance(result, counted=counted),
        "audits": tried,
    }
    return page | {"lines": _lines(page)}


_LEFT_OUT = {
    "repeats": "repeats by the same person or beyond the cap",
    "capped": "beyond the cap for one person",
    "dropped": "for their texts",
    "left_out": "that the board has already",
}


def _facts(result: Json, guarantee: Guarantee) -> list[list[str]]:
    """Return how much there is, each a name, a number and what it leaves out; no secret one."""
    data = result.get("data") or {}
    known = {} if guarantee.hides_counts else data
    counts = {name: real(f"data.{name}", known.get(name)) for name in (*_LEFT_OUT, *_COUNTED)}
    pairs = counts["pairs" if counts["ballots"] is None else "ballots"]
    rows = []
    if pairs is not None:
        if counts["records"] is not None:  # of files: what does not count was read too
            counts["repeats"] = counts["records"] - pairs
        more = [f"{whole(n)} {why}" for name, why in _LEFT_OUT.items() if (n := counts[name])]
        files = "" if counts["files"] is None else f"in {whole(counts['files'])} files"
        parts = [files, f"without {' and '.join(more)}" if more else ""]
        rows.append([judged(result).capitalize(), whole(pairs), ", ".join(filter(None, parts))])
    if (persons := counts["persons"]) is not None and guarantee.unit == "person":
        rows.append(["Persons", whole(persons), ""])
    board = result.get("leaderboard") or {}
    items = board.get("items") or [
        item for item in result.get("items") or () if item.get("worth") is not None
    ]
    rows += [["Items", whole(len(items)), ""]] if items else []
    groups, updates = board.get("groups") or (), len(board.get("history") or ())
    rows += [["Groups", whole(len(groups)), f"({', '.join(groups)})"]] if groups else []
    return [*rows, *([["Updates", whole(updates), ""]] if updates > 1 else [])]


_COUNTED = ("pairs", "ballots", "records", "persons", "files")
_PRICES = {"One label", "One person", "Cap", "Reward alone"}
_FIRST = 5  # items of a closing summary


def _lines(page: Json) -> Rows:
    """Return what a page says as the lines with which a command ends."""
    rows = [[name, f"{number} {more}".strip()] for name, number, more in page["facts"]]
    rows += [row for row in page["mechanism"] or () if row[0] in _PRICES]
    rows += [*page["learned"], *page["trained"], *page["planned"]]
    for place, table in (("Board", page["leaderboard"]), ("Best items", page["worths"])):
        if table is not None:
            rows.append([place, _first_items(table)])
    reward, policy = (page[name] or {"metrics": []} for name in ("reward", "policy"))
    metrics = reward["metrics"] + policy["metrics"]
    note = page["metrics_note"] if page["reward"] else ""
    if page["verdict"]["folded"]:
        metrics = []
        note = "Nothing that tells more than a guess." if reward["metrics"] else note
    for one in metrics:
        text = f"{one['text']} {one['detail']}".strip()
        if not (one["detail"] and text in page["verdict"]["says"]):
            rows.append([one["label"], text])
    rows += [["Measured", note]] if note else []
    for place, name in (("On public data", "metrics"), ("Against the truth", "truth")):
        if told := page["public"][name]:
            rows.append([place, ", ".join(f"{one['label']} {one['text']}" for one in told)])
    return [[name if "KL" in name else name.lower(), said] for name, said in rows]


def _first_items(table: Json) -> str:
    """Return the best items of a board, or of an election, one in each line."""
    board = table["boards"][0] if "boards" in table else table
    rows, silent = board["rows"], len(board.get("silent", ()))
    shown = [f"{' '.join(row['name'].split())}: {row['line']}" for row in rows[:_FIRST]]
    shown += [f"and {whole(len(rows) - _FIRST)} more"] if len(rows) > _FIRST else []
    return "\n".join([*shown, *([f"nothing can be said of {whole(silent)}"] if silent else [])])


def _statement(result: Json, facts: Sequence[Sequence[str]]) -> str:
    """Return in one line what was learned, and of how much."""
    parts = (
        ("reward", "a reward model"),
        ("policy", "a policy"),
        ("trained", "a policy"),
        ("plan", "a plan"),
        ("leaderboard", "ratings and ranks"),
    )
    learned = " and ".join(text for key, text in parts if result.get(key) is not None)
    counted = [f"{number} {name.lower()}" for name, number, _ in facts if name != "Items"]
    return f"Learned from {(counted or ['human judgments'])[0]}: {learned}." if learned else ""


def _provenance(result: Json, *, counted: bool) -> dict[str, Any]:
    """Return what a reader needs to check the run or to repeat it; a time tells a size."""
    reward, policy = result.get("reward") or {}, result.get("policy") or {}
    features = (reward.get("features") or {}).items()
    settings = {
        "noise": result.get("noise"),
        **{f"features {key}".replace("_", " "): value for key, value in features},
        "method": reward.get("method"),
        "ridge": reward.get("ridge"),
        "gradient norm": reward.get("gradient_norm"),
        "temperature": policy.get("temperature"),
    }
    return {
        "settings": [[key, str(value)] for key, value in settings.items() if value is not None],
        "versions": [["sordino", __version__]],
        "seconds": real("seconds", result.get("seconds")) if counted else None,
    }


def _describe_prediction(
    source: Json | None, accuracy: Json | None, facts: Sequence[Sequence[str]]
) -> dict[str, Any] | None:
    """Return the privacy–utility curve in words and numbers, or None if there is none."""
    source = source or {}
    places = (
        tuple(real(f"utility.{key}", row.get(key)) for key in ("epsilon", "accuracy"))
        for row in source.get("curve") or ()
    )
    # rows without both numbers are left out
    points = dict(sorted((x, y) for x, y in places if x and y is not None))
    counted = [number for name, number, _ in facts if name in {"Pairs", "Answers"}]
    if not counted or len(points) < 2:  # noqa: PLR2004 (a line has two ends)
        return None
    ceiling = real("utility.assumed_accuracy", source.get("assumed_accuracy"))
    chosen = real("utility.epsilon", source.get("chosen_epsilon"))
    measured = accuracy if accuracy and accuracy["value"] is not None else None
    interval: list[float] | None = None if measured is None else measured["interval"]
    dimension = real("utility.effective_dimension", source.get("effective_dimension"))
    sizes = [f"{counted[0]} labels"]
    if dimension is not None:
        sizes.append(f"an effective dimension of {plain(dimension)}")
    if ceiling is not None:
        sizes.append(f"an assumed accuracy of {percent(ceiling)} without privacy")
    return {
        "points": [list(point) for point in points.items()],
        "ceiling": ceiling,
        "ceiling_text": None if ceiling is None else percent(ceiling),
        "sizes": " and ".join(filter(None, [", ".join(sizes[:-1]), sizes[-1]])),
        "chosen": None
        if chosen not in points
        else {
            "epsilon": chosen,
            "epsilon_text": at_least(chosen),
            "accuracy": points[chosen],
            "text": percent(points[chosen]),
        },
        "measured": None
        if measured is None
        else {
            "value": measured["value"],
            "text": measured["text"],
            "interval": interval,
            "detail": " to ".join(map(percent, interval)) if interval else "",
        },
        "above": interval is not None and ceiling is not None and interval[0] > ceiling,
        "rows": [{"epsilon": at_least(x), "accuracy": percent(y)} for x, y in points.items()],
    }
