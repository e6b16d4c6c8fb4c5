"""Feedback that Open WebUI wrote: thumbs with their chat, and battles by the names that met."""

import json

import pytest


def _message(name, parent, role, content, model=None):
    return {"id": name, "parentId": parent, "childrenIds": [], "role": role, "content": content,
            "timestamp": 1, **({"model": model} if model else {})}  # fmt: skip


def _entry(number):
    """One row of an export: m is liked two times in three, and meets k in three of four chats."""
    rated, other = ("m", "k") if number % 2 else ("k", "m")
    liked = (number % 3 != 0) == (rated == "m")
    messages = [
        _message("1", None, "user", f"Question {number}?"),
        _message("2", "1", "assistant", f"Answer {number}", rated),
        _message("3", "1", "assistant", f"Another {number}", other),
    ]
    data = {"rating": 1 if liked else -1, "model_id": rated, "reason": "", "comment": "",
            "tags": ["tea"], "details": {"rating": 8 if liked else 2}}  # fmt: skip
    siblings = [[], [other], [other], [other, "x"]][number % 4]
    if number % 8:
        data["sibling_model_ids"] = siblings or None
    meta = {"arena": bool(siblings), "model_id": rated, "message_id": "2", "message_index": 2,
            "chat_id": f"c{number}", "base_models": {rated: None}}  # fmt: skip
    history = {"messages": {one["id"]: one for one in messages}, "currentId": "2"}
    chat = {"id": f"c{number}", "title": "t", "chat": {"models": [rated], "history": history}}
    return {"id": str(number), "user_id": f"u{number % 7}", "version": 0, "type": "rating",
            "data": data, "meta": meta, "snapshot": {"chat": chat},
            "created_at": 1, "updated_at": 2}  # fmt: skip


@pytest.fixture
def exported(folder):
    """An export as it is, and the same without chats, as the application shares it."""
    rows = [_entry(number) for number in range(80)]
    (folder / "export.json").write_text(json.dumps(rows))
    shared = [{name: row[name] for name in row if name != "snapshot"} for row in rows]
    (folder / "shared.json").write_text(json.dumps(shared))
    return folder


def test_every_thumb_of_an_export_is_read_with_its_chat(exported):
    said = exported.run("inspect", "export.json", "--json")
    assert said.code == 0, said.err
    assert "feedback of Open WebUI" in said.out
    assert said.value["problem"] is None
    people = ["--person-field", "user_id"]
    spend = ["--epsilon", "8", "--dimension", "16", "--ledger", "spend.db", "--out", "run"]
    assert exported.run("align", "export.json", *people, *spend).code == 0


def test_battles_are_the_votes_in_which_one_other_model_answered(exported):
    said = exported.run("inspect", "shared.json", "--json")
    assert said.code == 0, said.err
    assert "votes of Open WebUI" in said.out
    words = ["--person-field", "user_id", "--epsilon", "8", "--out", "board"]
    said = exported.run("rank", "shared.json", *words)
    assert said.code == 0, said.err
    wanted = sum(1 for n in range(80) if n % 4 in {1, 2})
    assert str(wanted) in next(line for line in said.out.splitlines() if "votes" in line)
    assert "m is ahead of all others" in " ".join(said.out.split())
