"""Reads pages as a browser and as a person do, and makes the runs and audits that they tell of."""

import copy
import re
from html import unescape
from html.parser import HTMLParser

import sordino
from sordino.auditing.findings import Audit, Finding, Measurement
from sordino.reporting import render_report, summarize

VOID = {"meta", "br", "input"}
SHAPES = {"rect", "line", "circle", "path", "polygon", "polyline"}
HOSTILE = '"><script>alert(1)</script><svg onload=x> http' + "://example.org/ \u202e"
SIZE = 40617  # no other number on a page begins so


class Reader(HTMLParser):
    """Checks that tags nest, and keeps what a test asks about."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []
        self.words = " ".join("".join(self.text).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SHAPES, tag
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    def values(self, attribute):
        """Return every value of an attribute, in order."""
        return [attrs[attribute] for _, attrs in self.tags if attribute in attrs]


def page_of(result, **more):
    return render_report(summarize(result, **more))


def words(result, **more):
    """Return what a person reads on the page of a run, figures left out."""
    page = result if isinstance(result, str) else page_of(result, **more)
    body = re.sub(
        r"<style>.*?</style>|<title>.*?</title>|<svg.*?</svg>", " ", page, flags=re.DOTALL
    )
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def assert_no_hole(result, **more):
    """Fail where a page shows nothing, or a value that is none."""
    page = page_of(result, **more)
    text = words(page)
    assert "None" not in text.replace("None were recorded", "")
    assert not {"nan", "inf", "?"} & set(text.split())
    assert not re.search(r"<(dl|dd|dt|p|h2|h3|ul)[^>]*>\s*</\1>", page)
    assert "SIMULATED" not in text


# Runs of a curator.

METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")
TERMS = {"epsilon": 1.0, "delta": 1e-6}
SUM = {**TERMS, "mu": 0.2367, "shaped": True, "records_per_person": None}
MECHANISMS = {
    "labels": {"name": "label-gaussian", **SUM},
    "records": {
        "name": "objective-perturbation", **TERMS, "bound": 2.0, "ridge": 3.08,
        "standard_deviation": 8.51, "second_moment": False, "second_moment_mu": 0.0,
    },
    "ballots": {"name": "ranking-gaussian", **SUM, "statistic": "borda"},
    "private ballots": {
        "name": "ranked-perturbation", **TERMS, "bound": 2.5, "candidates": 4, "dimension": 3,
        "ridge": 31.06, "standard_deviation": 60.25,
    },
}  # fmt: skip
BOUGHT = {"name": "label-gaussian", "epsilon": 0.5, "delta": 1e-6, "mu": 0.124, "share": 0.2}
UNITS = {
    "label": ("label", "REPLACE_ONE", []),
    "person": ("person", "REPLACE_ONE", ["labels-only"]),
    "zero-out": ("record", "REPLACE_SPECIAL", ["real-arithmetic"]),
    "add-remove": ("record", "ADD_OR_REMOVE_ONE", ["real-arithmetic"]),
}
KINDS = [*UNITS, *(f"{name}+metrics" for name in UNITS)]


def curator(mechanism, unit, neighbors, caveats, **parts):
    """What result.json holds of any run with noise on the estimate, before what it measured."""
    records = unit == "record"
    return {
        "noise": "estimate",
        "guarantee": {
            "epsilon": 1.0, "delta": 1e-6, "unit": unit, "neighbors": neighbors,
            "trust": "central", "randomness": "system",
        },
        "caveats": caveats,
        "mechanism": copy.deepcopy(MECHANISMS[mechanism]),
        "metrics": None,
        "reward": {
            **dict.fromkeys([*METRICS, *(f"{key}_standard_error" for key in METRICS)]),
            "method": MECHANISMS[mechanism]["name"], "method_asked": "auto",
            "weight_standard_error": None if records else 0.3, "ridge": 3.08,
            "gradient_norm": 1e-8, "features": {"kind": "hashed-text", "dimension": 512},
        },
        "policy": {
            "kind": "gibbs", "confidence": None, "scale": None, "temperature": 0.5, "kl": None,
            "win_rate": None, "win_rate_interval": None, "pessimism": None,
        },
        "utility": None, "decisive": None, "examples": None, "calibration": [],
        "seconds": None if neighbors == "ADD_OR_REMOVE_ONE" else 3.2,
        **parts,
    }  # fmt: skip


def of_pairs(name):
    """What result.json holds of one run of pairs; a name with "+metrics" bought some."""
    kind, _, bought = name.partition("+")
    unit, neighbors, caveats = UNITS[kind]
    records, hidden = unit == "record", kind == "add-remove"
    result = curator("records" if records else "labels", unit, neighbors, caveats)
    result["data"] = {"name": "preferences", "pairs": None if hidden else SIZE}
    if kind == "person":
        result["mechanism"]["records_per_person"] = 5
    if not records:
        result["reward"] |= {"negative_log_likelihood": 0.61, "calibration_slope": 0.95}
        result["policy"]["kl"] = 0.05
    if kind == "label":
        curve = [{"epsilon": 0.1, "accuracy": 0.6}, {"epsilon": 10.0, "accuracy": 0.64}]
        result["utility"] = {
            "curve": curve, "assumed_accuracy": 0.65, "effective_dimension": 12,
            "chosen_epsilon": 1.0,
        }  # fmt: skip
    if bought:
        result["guarantee"]["epsilon"] = 1.2
        result["metrics"] = {**BOUGHT, "pairs": None if records else 8123}
        result["reward"] |= {"accuracy": 0.66, "accuracy_standard_error": 0.02}
        result["reward"]["negative_log_likelihood"] = 0.62
        result["policy"] |= {"win_rate": 0.6, "win_rate_interval": [0.55, 0.65]}
    return result


CLEAR = [("Ada", 2.0, 0.3), ("Bo", 0.5, 0.4), ("Cy", 0.1, 0.3), ("Di", -2.6, 0.5)]


def of_rankings(rows=CLEAR, *, records=False, choices=True):
    """What result.json holds of one run of rankings: name, worth and half an interval of each."""
    unit = ("private ballots", "record", "ADD_OR_REMOVE_ONE", ["real-arithmetic"])
    result = curator(*(unit if records else ("ballots", "label", "REPLACE_ONE", [])))
    ballots = None if records else 504
    result["data"] = {"name": "votes", "pairs": None, "ballots": ballots, "items": len(rows)}
    if choices:
        share = 1 / max(1, len(rows))
        result["policy"]["choices"] = [{"name": row[0], "probability": share} for row in rows]
    result["items"] = [
        {"name": name, "worth": worth, "interval": reach and [worth - reach, worth + reach]}
        for name, worth, reach in rows
    ]
    return result


# Audits.


def claim(epsilon=1.0, delta=0.0, *, neighbors=sordino.REPLACE_ONE, unit="label", **more):
    return sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="local", **more
    )


def measured(lower, *, claimed=1.0, metric="epsilon", confidence=0.999, **more):
    return Measurement(metric=metric, claimed=claimed, lower=lower, confidence=confidence, **more)


def found(attack="position", outcome="clear", **more):
    return Finding(attack=attack, outcome=outcome, summary=f"Came of {attack}.", **more)


def audit(*numbers, findings=None, promise=None, **more):
    given = {"kind": "release", "subject": "answers.jsonl", **more}
    tried = (found(),) if findings is None else tuple(findings)
    return Audit(claim=promise or claim(), findings=tried, measured=numbers, **given)
