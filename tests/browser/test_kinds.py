"""Every kind of question, from the invitation to the stored answer: by mouse, and by keys only."""

import json
import shutil
import subprocess
from itertools import permutations

import pytest

from .test_collect_page import check  # noqa: F401 (a fixture)

_FEW = ["In a paper bag.", "In the fridge.", "In a bread box."]
_ROWS = [
    {
        "prompt": "Bread: pair?",
        "first": _FEW[0],
        "second": _FEW[1],
        "first_name": "model-a",
        "second_name": "model-b",
    },
    {"prompt": "Bread: thumb?", "completion": _FEW[0], "ask": "thumb", "first_name": "model-a"},
    {"prompt": "Bread: rating?", "completion": _FEW[0], "first_name": "model-b"},
    {"prompt": "Bread: choice?", "candidates": _FEW, "names": ["model-a", "model-b", "model-c"]},
    {"prompt": "Bread: ranking?", "candidates": _FEW, "ask": "ranking"},
]
_STUDY = {"rows": _ROWS, "levels": "1..5", "cap": 5}
# What is pressed for each kind, and what the page then says.
_KEYS = {"pair": "2", "thumb": "1", "rating": "4", "choice": "3", "ranking": "31"}
_SAID = {
    "pair": "You chose answer 2",
    "thumb": "You chose: good",
    "rating": "You rated it 4, from 1 to 5",
    "choice": "You chose answer 3",
    "ranking": "Answer 3 is your number 1",
}
_OUTCOMES = {"pair": 2, "thumb": 2, "rating": 2, "choice": 3, "ranking": 3}


def _asked(page):
    """Return what the question on the page asks for: its prompt says it."""
    page.wait_for_selector(".question")
    return page.inner_text(".prompt").partition(": ")[2].partition("?")[0]


@pytest.mark.parametrize("mouse", [True, False])
def test_each_kind_is_answered_and_stored_and_no_name_is_told(site, visit, mouse):
    one, person, told = site(**_STUDY), visit(), []
    before, page = one.rows(), person.page
    page.on("response", lambda reply: told.append(reply.text() if "/api/" in reply.url else ""))
    page.goto(one.link())
    page.wait_for_selector("#main .primary")
    explained = page.inner_text("main")
    assert "replaces about 4 in 10 of your choices by another answer" in explained
    assert "(42.3%)" in explained  # 2/(e + 2)
    assert "all 3 answers equally likely, can be at most 57.7% sure" in explained  # e/(e + 2)
    assert "turned into a yes or a no by chance: the higher it is" in explained
    page.focus("#main .primary")
    page.keyboard.press("Enter")
    kinds = []
    for _ in _ROWS:
        kinds.append(_asked(page))
        for key in _KEYS[kinds[-1]]:
            if mouse:
                page.click(f".choose >> nth={int(key) - 1}")
            else:
                page.keyboard.press(key)
        page.wait_for_selector(".pending")
        assert _SAID[kinds[-1]] in page.inner_text(".pending")
        assert _SAID[kinds[-1]] in page.inner_text("#announcer")
        title = page.inner_text("h1")
        if mouse:
            page.click(".send")
        else:
            page.keyboard.press("Enter")
        page.wait_for_function("(h) => document.querySelector('h1').textContent !== h", arg=title)
    page.wait_for_selector("h1:has-text('Thank you')")
    rows = {row[1]: row[4] for row in one.rows() if row not in before}
    assert rows == {record["question"]: record["answer"] for record in person.stored("answers")}
    assert sorted(kinds) == sorted(_KEYS)
    assert len(rows) == len(_ROWS)
    assert all(
        rows[question["id"]] < _OUTCOMES[question["ask"]] for question in person.stored("questions")
    )
    assert any("Bread: pair?" in text for text in told)
    assert not any("model-" in text for text in [*told, page.content()])
    assert person.noted == []


_COLORS = """new Set([...document.querySelectorAll(".choose")].map(
  (one) => getComputedStyle(one).backgroundColor)).size"""


@pytest.mark.parametrize(
    ("view", "scheme"),
    [((390, 844), "dark"), ((1280, 900), "light"), ((320, 600), "light")],  # the last is 400 %
)
def test_each_kind_is_accessible_and_can_be_undone(site, visit, check, view, scheme):  # noqa: F811
    small = view[0] < 1000
    person = visit(
        viewport={"width": view[0], "height": view[1]},
        color_scheme=scheme,
        has_touch=small,
        is_mobile=small,
    )
    person.context.add_init_script(
        """globalThis.drawn = 0;
        const real = crypto.getRandomValues.bind(crypto);
        crypto.getRandomValues = (bytes) => { drawn += bytes.length === 8; return real(bytes); };"""
    )
    page = person.page
    page.goto(site(**_STUDY).link())
    page.wait_for_selector(".demonstration >> nth=1")
    check(page, "explanation")
    page.click("#main .primary")
    for _ in _ROWS:
        kind = _asked(page)
        check(page, kind)
        drawn = page.evaluate("drawn")
        for key in ["s"] if kind in {"thumb", "rating"} else ["s", "t", "0"]:
            page.keyboard.press(key)
            page.wait_for_selector(".pending")
            page.keyboard.press("u")
            assert page.locator(".pending").count() == 0
        *steps, last = _KEYS[kind]
        for key in steps:
            page.keyboard.press(key)
            page.keyboard.press("Escape")  # one step back is nothing at all
            assert page.locator("[aria-pressed=true]").count() == 0
            page.keyboard.press(key)
            assert "Which one is number 2?" in page.inner_text("#announcer")
            assert page.locator(".pending").count() == 0
            check(page, f"{kind}, one step")
        page.keyboard.press(last)
        page.wait_for_selector(".pending")
        check(page, f"{kind}, pending")
        assert page.evaluate("drawn") == drawn  # not one word of a coin or a die
        if kind != "ranking":  # there all are pressed
            page.emulate_media(forced_colors="active")
            assert page.evaluate(_COLORS) == 2
            page.emulate_media(forced_colors="none")
        title = page.inner_text("h1")
        page.keyboard.press("Enter")
        page.wait_for_function("(h) => document.querySelector('h1').textContent !== h", arg=title)


_FEWS = [list(order) for order in permutations(range(3))]
_TERMS = {"ties": True, "skips": True, "levels": [-1, 3]}
_CASES = [  # a question, and each choice with the judgment that it is
    *(
        ({"ask": "pair", "answers": ["", ""], "order": order}, expected)
        for order, expected in [
            ([0, 1], [[0, [1, 1]], [1, [0, 1]], ["tie", [1, 2]], ["skip", [1, 2]]]),
            ([1, 0], [[0, [0, 1]], [1, [1, 1]], ["tie", [1, 2]], ["skip", [1, 2]]]),
        ]
    ),
    ({"ask": "thumb", "answers": [""], "order": [0]}, [[0, [1, 1]], [1, [0, 1]], ["skip", [1, 2]]]),
    (
        {"ask": "rating", "answers": [""], "order": [0]},
        [*([j, [j, 4]] for j in range(5)), ["skip", [1, 2]]],
    ),
    *(
        (
            {"ask": "choice", "answers": ["", "", ""], "order": order},
            [*([at, order[at]] for at in range(3)), ["all", -1], ["skip", -1]],
        )
        for order in _FEWS
    ),
    *(
        (
            {"ask": "ranking", "answers": ["", "", ""], "order": order},
            [*([placed, order[placed[0]]] for placed in _FEWS), ["all", -1], ["skip", -1]],
        )
        for order in _FEWS
    ),
]
_PRESSED = {  # keys of each kind, and the choices that they make one after the other
    "pair": ("1320", [0, 1, "tie"]),
    "thumb": ("12s", [0, 1, "skip"]),
    "rating": ("15s60", [0, 4, "skip"]),
    "choice": ("134T", [0, 2, "all"]),
    "ranking": ("31u12s33", [[2], [2, 0, 1], [2], [2, 0, 1], [2], "skip", [2], None]),
}
_RUN = """
const made = [];
for (const module of modules) {
  const { kindOf } = await import(module);
  try {
    const judged = cases.map(([question, choices]) =>
      choices.map(([choice]) => [choice, kindOf(question, terms).judgment(choice)]));
    const taken = {};
    for (const [question] of cases) {
      const kind = kindOf(question, terms);
      let choice = null;
      taken[question.ask] = [];
      for (const key of pressed[question.ask][0]) {
        const number = key === "u" ? null : kind.keyed(key, choice);
        if (key !== "u" && number === null) continue;
        choice = key === "u" ? kind.back(choice) : kind.press(number, choice);
        taken[question.ask].push([choice, kind.complete(choice)]);
      }
    }
    made.push([judged, taken]);
  } catch (error) {
    made.push(String(error));
  }
}
console.log(JSON.stringify(made));
"""


def _complete(choice):
    return choice is not None and (not isinstance(choice, list) or len(choice) == 3)


def _expected():
    taken = {ask: [[one, _complete(one)] for one in made] for ask, (_, made) in _PRESSED.items()}
    return [[choices for _, choices in _CASES], taken]


_BUGS = {
    "pair: the side of the screen": (
        "[FIRST, SECOND][this.order[choice]]",
        "[FIRST, SECOND][choice]",
    ),
    "thumb: turned": ("[FIRST, SECOND][choice]", "[SECOND, FIRST][choice]"),
    "thumb: a skip is bad": (
        "[FIRST, SECOND][choice] ?? UNDECIDED",
        "[FIRST, SECOND][choice] ?? SECOND",
    ),
    "thumb: a skip is no judgment": (
        "[FIRST, SECOND][choice] ?? UNDECIDED",
        "[FIRST, SECOND][choice]",
    ),
    "rating: turned": ("[choice, this.count - 1]", "[this.count - 1 - choice, this.count - 1]"),
    "rating: never the highest": ("[choice, this.count - 1]", "[choice, this.count]"),
    "rating: never the lowest": ("[choice, this.count - 1]", "[choice + 1, this.count]"),
    "rating: the level itself": ("[choice, this.count - 1]", "[this.low + choice, this.high]"),
    "rating: a skip is the lowest": (
        "? [choice, this.count - 1] : UNDECIDED",
        "? [choice, this.count - 1] : SECOND",
    ),
    "rating: keys one off": ("(level + 9) % 10", "level"),
    "choice: the place on the screen": ("return this.order[choice] ??", "return choice ??"),
    "choice: turned back wrongly": (
        "return this.order[choice] ??",
        "return [this.order.indexOf(choice)].find((at) => at >= 0) ??",
    ),
    "choice: none is the first": (
        "return this.order[choice] ?? NO_CHOICE",
        "return this.order[choice] ?? 0",
    ),
    "choice: none is undecided": (
        "return this.order[choice] ?? NO_CHOICE",
        "return this.order[choice] ?? UNDECIDED",
    ),
    "ranking: the last place": ("this.#placed(choice)[0]", "this.#placed(choice).at(-1)"),
    "ranking: the place on the screen": (
        "this.order[this.#placed(choice)[0]]",
        "this.#placed(choice)[0]",
    ),
    "ranking: the whole order": (
        "this.order[this.#placed(choice)[0]] ??",
        "this.#placed(choice) ??",
    ),
    "ranking: none is the first": (
        "this.order[this.#placed(choice)[0]] ?? NO_CHOICE",
        "this.order[this.#placed(choice)[0]] ?? 0",
    ),
    "ranking: complete too early": ("choice.length === this.count", "choice.length > 0"),
    "ranking: one step too far back": ("this.count - 2))", "this.count - 3))"),
    "ranking: the last first": (
        "[...longer, ...this.order.map((_, other) => other)",
        "[...this.order.map((_, other) => other)",
    ),
}


@pytest.fixture(scope="module")
def judged(page_folder, tmp_path_factory):
    """Return what kinds.js, and each planted bug in it, makes of choices and keys."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "elements.js").write_text("export const button = null, element = null;")
    (folder / "texts.js").write_text("export const say = null;")
    (folder / "randomize.js").write_bytes((page_folder / "randomize.js").read_bytes())
    source = (page_folder / "kinds.js").read_text("utf-8")
    (folder / "kinds.js").write_text(source)
    names = {"": folder / "kinds.js"}
    for number, (bug, (before, after)) in enumerate(_BUGS.items()):
        assert source.count(before) == 1, bug
        names[bug] = folder / f"bug{number}.js"
        names[bug].write_text(source.replace(before, after))
    given = {
        "modules": [str(path) for path in names.values()],
        "cases": _CASES,
        "terms": _TERMS,
        "pressed": _PRESSED,
    }
    script = folder / "run.js"
    script.write_text(
        "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items()) + _RUN
    )
    done = subprocess.run(["node", script], capture_output=True, text=True, timeout=120, check=True)
    return dict(zip(names, json.loads(done.stdout), strict=True))


def test_a_choice_is_the_judgment_of_the_answers_that_were_on_the_screen(judged):
    assert judged[""] == _expected()


@pytest.mark.parametrize("bug", _BUGS)
def test_a_planted_bug_in_a_kind_is_caught(judged, bug):
    assert judged[bug] != _expected()
