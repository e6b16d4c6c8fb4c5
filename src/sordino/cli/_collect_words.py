"""What the commands of ``sordino collect`` say of a study, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sordino.collection.study import Study
from sordino.preferences.manifest import Manifest
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, never_less, never_more

__all__ = ["export_rows", "promise_rows", "promise_values", "status_rows", "study_values"]

_MOST_ODDS: Final = 999  # beyond it almost any belief can become almost certain


def study_values(study: Study) -> dict[str, Any]:
    """Return what identifies a study, for JSON."""
    return {"study": study.id, "title": study.title, "questions": len(study.questions)}


def promise_values(study: Study) -> dict[str, Any]:
    """Return what a study promises, for JSON."""
    person = study.guarantee("person")
    return {
        "epsilon": study.epsilon,
        "flip_probability": study.coin.flip_probability,
        "cap": study.most_labels,
        "person_epsilon": person.epsilon,
        "changes": study.changes,
        "trust": person.trust,
    }


def promise_rows(study: Study) -> dict[str, str]:
    """Return what a study promises in lines for people; no number is rounded in its favor."""
    flips = study.coin.flip_probability
    person = study.guarantee("person")
    answer = study.coin.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local")
    return {
        "each answer": f"epsilon={never_less(study.epsilon)}; {_reach(answer)}",
        "flipped": f"{never_more(100 * flips, 3)}% of the answers "
        f"(about 1 in {never_less(1 / flips, 3)}), by a coin on the person's own device",
        "one invitation": f"at most {study.most_labels:,} answers, "
        f"epsilon={never_less(person.epsilon)} together; {_reach(person)}",
        "a changed mind": "is not taken: the first answer stands"
        if study.changes == "refused"
        else "is a new answer that costs another epsilon, within the same cap",
    }


def _reach(promise: Guarantee) -> str:
    """Return how far a promise lets odds and beliefs move, rounded up."""
    if promise.odds > _MOST_ODDS:
        return "too much to protect a person's taste as a whole"
    belief = never_less(100 / (1 + 1 / promise.odds), 3)
    factor = never_less(promise.odds, 3)
    return f"odds move by at most {factor} times, a belief of 50 % to {belief} %"


def status_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return how far a study is."""
    invitations, per_question = told["invitations"], told["per_question"]
    counts = [row["answers"] for row in per_question]
    rows = {
        "title": told["title"],
        "study": told["study"],
        "questions": f"{told['questions']:,}",
        "invitations": f"{invitations['made']:,} made, {invitations['opened']:,} opened, "
        f"{invitations['revoked']:,} revoked, {invitations['expired']:,} expired",
        "answers": f"{told['answers']:,} of {told['persons']:,} people "
        "(whoever has two invitations counts as two)",
        "per question": f"{min(counts):,} to {max(counts):,} answers",
        "promise": f"epsilon={never_less(told['epsilon'])} an answer, "
        f"{never_less(told['person_epsilon'])} per invitation ({told['cap']:,} answers at most)",
    }
    if told["closed"]:
        rows["closed"] = "no invitation is left with which anybody could send"
    return rows


def export_rows(manifest: Manifest, study: Study, *, name: str, note: str) -> dict[str, str]:
    """Return what was written, and what it promises."""
    rows = {
        "written": f"{name} and {note}",
        "guarantee": f"epsilon={never_less(manifest.epsilon)} per {manifest.unit}, "
        f"trust: {manifest.trust}",
    }
    if manifest.unit == "person":
        rows["each answer"] = (
            f"epsilon={never_less(study.coin.realized_epsilon)}, at most "
            f"{study.most_labels:,} per invitation"
        )
    return rows | {
        "caveats": ", ".join(manifest.caveats) or "none",
        "next": f"sordino align {name} --out runs/study (it spends nothing)",
    }
