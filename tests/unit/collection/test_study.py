"""A study is a file that people edit: what is wrong in it is said, and what matters is frozen."""

import json
from dataclasses import replace

import pytest

from sordino.collection.database import frozen, open_database
from sordino.collection.study import DATABASE_VARIABLE, new_study, read_study
from sordino.errors import DataError, FileSystemError, LedgerMismatch, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse

TITLE = 'Which is "better" \\ <b>?\t\x7f ü'


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "asked"
    folder.mkdir()
    rows = [{"prompt": f"p{n}", "first": "a", "second": "b"} for n in range(4)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "study.toml"
    new_study(path, title=TITLE, questions=folder / "q.jsonl", epsilon=0.5, cap=3)
    return path


def edit(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_what_is_written_is_what_is_read(file):
    study = read_study(file)
    assert (study.title, study.epsilon, study.cap, len(study.questions)) == (TITLE, 0.5, 3, 4)
    assert (study.ties, study.skips, study.changes, study.tick_seconds) == (
        True, False, "refused", 15,
    )  # fmt: skip
    assert study.most_questions == 3
    with pytest.raises(UsageError, match=r"study.toml exists already"):
        new_study(file, title="t", questions=file.parent / "asked/q.jsonl", epsilon=1, cap=1)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cap = 3", "cap = 0", "cap must be a whole number of at least 1"),
        ("cap = 3", "", "lacks the setting 'cap'"),
        ("cap = 3", "cap = 3\nnoise = 0", "has a setting that no study has"),
        ("cap = 3", "cap = true", "cap must be"),
        ("epsilon = 0.5", "epsilon = -1", "epsilon must be"),
        ("epsilon = 0.5", "epsilon = nan", "epsilon must be"),
        ("epsilon = 0.5", "epsilon = '1'", "epsilon must be"),
        ("ties = true", "ties = 'yes'", "ties must be one of"),
        ("markdown = true", "markdown = 'yes'", "markdown must be one of"),
        ('changes = "refused"', 'changes = "free"', "changes must be one of 'refused', 'paid'"),
        ("tick_seconds = 15", "tick_seconds = 0", "tick_seconds must be"),
        ('["en", "de", "es", "fr"]', '"en"', "languages must be a list"),
        ('["en", "de", "es", "fr"]', "[]", "languages must be a list"),
        ('["en", "de", "es", "fr"]', "[3]", "languages must be a list"),
        ('"study.db"', '""', "database must be a text"),
        ('"asked/q.jsonl"', "7", "questions must be the name of a file"),
        ("cap = 3", "cap = = 3", "is no study"),
    ],
)
def test_a_setting_that_cannot_be_is_named(file, old, new, said):
    edit(file, old, new)
    with pytest.raises(DataError, match=rf"study\.toml.*{said}"):
        read_study(file)


def test_missing_files_are_named(file):
    edit(file, '"asked/q.jsonl"', '"asked/none.jsonl"')
    with pytest.raises(FileSystemError):
        read_study(file)
    with pytest.raises(FileSystemError, match=r"none\.toml"):
        read_study(file.parent / "none.toml")


def test_a_question_that_cannot_be_used_is_named_with_its_file(file):
    with (file.parent / "asked/q.jsonl").open("a") as questions:
        questions.write('{"prompt": "p", "first": "a", "second": "a"}\n')
    with pytest.raises(DataError, match=r"q\.jsonl, line 5: two answers are the same"):
        read_study(file)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 4.0, 50.0])
def test_the_promise_is_that_of_the_coin(file, epsilon):
    study = replace(read_study(file), epsilon=epsilon, accept_weak=True)
    coin, weak = RandomizedResponse(epsilon), ("weak-promise",) if epsilon == 50 else ()
    person, label = study.guarantee("person"), study.guarantee("label")
    assert study.terms["threshold"] == str(coin.threshold)
    assert label.epsilon == coin.realized_epsilon
    assert person.epsilon == pytest.approx(3 * coin.realized_epsilon, rel=1e-12)
    assert person.epsilon >= 3 * coin.realized_epsilon * (1 - 1e-15)
    assert (label.unit, label.trust, label.caveats) == ("label", "local", ("person-total", *weak))
    assert (person.unit, person.trust) == ("person", "local")
    assert person.caveats == ("labels-only", *weak)
    opened = replace(study, open=True)  # by any number of devices of one person
    for unit in ("person", "label"):
        assert opened.guarantee(unit).caveats == tuple(
            sorted((*study.guarantee(unit).caveats, "device-persons"))
        )


def test_where_minds_may_change_the_promise_is_about_people(file):
    study = replace(read_study(file), changes="paid")
    assert study.guarantee("person").epsilon == pytest.approx(1.5)
    with pytest.raises(UsageError, match="promise is about a person"):
        study.guarantee("label")


def test_a_database_is_a_file_or_a_url(file, monkeypatch):
    study = read_study(file)
    assert study.database_url == f"sqlite:///{file.parent.absolute()}/study.db"
    monkeypatch.setenv(DATABASE_VARIABLE, "postgresql://me@host/labels")
    assert study.database_url == "postgresql+psycopg://me@host/labels"
    for wrong in ("mysql://host/labels", "://", "postgresql://host:port/x"):
        monkeypatch.setenv(DATABASE_VARIABLE, wrong)
        with pytest.raises(UsageError, match="must be an SQLite file or a postgresql:// URL"):
            open_database(study.database_url)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("epsilon = 0.5", "epsilon = 0.6", "epsilon, threshold"),
        ("cap = 3", "cap = 4", "cap"),
        ("ties = true", "ties = false", "ties"),
        ("skips = false", "skips = true", "skips"),
        ('changes = "refused"', 'changes = "paid"', "changes"),
        ("tick_seconds = 15", "tick_seconds = 1", "tick_seconds"),
    ],
)
def test_what_people_were_promised_cannot_be_edited(file, old, new, named):
    engine = open_database(read_study(file).database_url)
    frozen(engine, read_study(file), create=True)
    edit(file, old, new)
    with pytest.raises(LedgerMismatch, match=f"changed after it began: {named}\\."):
        frozen(engine, read_study(file), create=True)
    edit(file, new, old)
    frozen(engine, read_study(file), create=False)
    engine.dispose()


def test_questions_are_frozen_and_what_only_looks_different_is_not(file):
    engine = open_database(read_study(file).database_url)
    frozen(engine, read_study(file), create=True)
    edit(file, "<b>", "<i>")
    edit(file, "markdown = true", "markdown = false")
    frozen(engine, read_study(file), create=False)
    questions = file.parent / "asked/q.jsonl"
    kept = questions.read_text()
    questions.write_text(kept.replace('"p2"', '"another"'))
    with pytest.raises(LedgerMismatch, match="changed after it began: questions"):
        frozen(engine, read_study(file), create=True)
    engine.dispose()


def test_a_database_is_of_one_study(file):
    study = read_study(file)
    engine = open_database(study.database_url)
    with pytest.raises(DataError, match="has not begun"):
        frozen(engine, study, create=False)
    assert not (file.parent / "study.db").exists()
    frozen(engine, study, create=True)
    with pytest.raises(LedgerMismatch, match="belongs to another study"):
        frozen(engine, replace(study, id="0" * 16), create=True)
    engine.dispose()


def test_a_database_that_cannot_be_written_is_said(file):
    study = replace(read_study(file), database="missing/folder/study.db")
    engine = open_database(study.database_url)
    with pytest.raises(FileSystemError, match="cannot be used"):
        frozen(engine, study, create=True)
    (file.parent / "study.db").write_bytes(b"no database at all, but some text" * 100)
    engine = open_database(read_study(file).database_url)
    with pytest.raises(FileSystemError, match="cannot be used"):
        frozen(engine, read_study(file), create=True)
    engine.dispose()


def test_where_there_is_less_to_ask_than_the_cap_the_promise_is_the_stronger_one(file):
    study = replace(read_study(file), cap=9)
    assert (study.most_questions, study.most_labels) == (4, 4)
    assert study.guarantee("person").epsilon == pytest.approx(2.0)
    changing = replace(study, changes="paid")
    assert (changing.most_questions, changing.most_labels) == (4, 9)
    assert changing.guarantee("person").epsilon == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"project": "P"}, "need each other"),
        ({"project": "P", "project_epsilon": 3.9}, "over project_epsilon=3.9"),
        ({"project": " ", "project_epsilon": 9.0}, "project must be a name"),
        ({"return_url": "http://panel.example"}, "https://"),
        ({"return_url": "https://"}, "https://"),
        ({"return_url": "javascript:alert(1)//https://x"}, "https://"),
        ({"minimum": -1}, "minimum"),
    ],
    ids=repr,
)
def test_settings_for_projects_and_panels_are_checked(make_study, settings, word):
    with pytest.raises(DataError, match=word):
        make_study(**settings)


def test_a_project_is_counted_in_decimals_as_people_write_them(make_study):
    study = make_study(epsilon=0.1, cap=3, project="P", project_epsilon=0.3)
    assert study.told(0)["project"] == {"name": "P", "epsilon": 0.3}
    assert study.terms["project"] == "P"
