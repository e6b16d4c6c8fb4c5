"""Everybody can use the page: by key, thumb or ear, by day and by night; and it runs no text."""

import io
import json
import re
import zipfile
from dataclasses import fields

import pytest

_LONG = (
    "# Bread\n\nKeep it *cool*, **not cold**.\n\n```python\nkeep(bread, where='in a paper bag', "
    "temperature=20, days=range(1, 4))\n```\n\n| kind | kept for | where it is best kept |\n"
    "|---|--:|:-:|\n| rye | 7 | `a_wooden_box_with_a_lid` |\n\n$$\n\\frac{a}{b}\n$$\n\n> 1. So\n\n"
    + "Keep it in a paper bag at room temperature, never in the fridge. "
    * 40
)
_EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> &amp; ${1} {number} \u202e\u0000ok"
_TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "How should I store bread?\n\nFor a few days."},
    {"role": "<b>judge</b>", "content": _EVIL.replace("\x00", "")},
]
_ROWS = [
    {"prompt": _EVIL.replace("\x00", ""), "first": "<b>bold</b>", "second": "x" * 600},
    {"prompt": _TALK, "first": _TALK[2:], "second": _TALK[1:]},
    {"prompt": "Long?", "first": _LONG, "second": "Short."},
]
_STUDY = {"rows": _ROWS, "cap": 5, "changes": "paid", "title": "Bread <i>&amp;</i> {number}"}
_VIEWS = {"phone": (390, 844), "desktop": (1280, 900), "small": (320, 600), "zoomed": (640, 450)}

_SMALL = """() => [...document.querySelectorAll("button, select, a")]
  .filter((one) => one.checkVisibility())
  .map((one) => [one.textContent, one.getBoundingClientRect()])
  .filter(([, box]) => box.width < 44 || box.height < 44).map(([text]) => text)"""


def _enter(page, one):
    """Open the admin page as its owner does: the token is pasted."""
    page.goto(f"{one.url}/admin")
    page.fill("#token", one.admin)
    page.keyboard.press("Enter")


_WIDE = "() => document.getElementById('page').scrollWidth > innerWidth"


def _texts(page):
    """Return every text that a person can see, as the document holds it."""
    return page.evaluate("document.body.textContent")


@pytest.fixture
def check():
    """Return a check of one state of the page: accessible, big enough, nothing cut off."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    ).Axe()

    def run(page, state):
        # What moves is looked at when it has arrived.
        page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
        result = axe.run(page).response
        grave = [
            (found["id"], [node["html"] for node in found["nodes"]])
            for found in result["violations"]
            if found["impact"] in {"serious", "critical"}
        ]
        assert grave == [], state
        assert len(result["passes"]) > 10, state
        assert page.evaluate(_SMALL) == [], state
        assert not page.evaluate(_WIDE), state

    return run


def _next(page, key):
    page.keyboard.press(key)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["phone", "desktop", "small"])
def test_every_state_is_accessible(site, visit, check, view, scheme):
    width, height = _VIEWS[view]
    small = view != "desktop"
    person = visit(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        has_touch=small,
        is_mobile=small,
        locale={"phone": "de", "small": "fr"}.get(view, "es" if scheme == "dark" else "en"),
    )
    one, page = site(**_STUDY), person.page
    page.goto(one.link())
    page.wait_for_selector(".demonstration")
    check(page, "explanation")
    page.click("#main .primary")
    page.wait_for_selector(".question")
    for place in range(3):
        check(page, f"question {place}")
        page.click(".choose >> nth=0")
        page.wait_for_selector(".pending")
        check(page, f"undo {place}")
        page.click(".send")
        page.wait_for_function(
            "(n) => !document.querySelector('h1').textContent.includes(` ${n} `)", arg=place + 1
        )
    check(page, "end")
    page.click("nav button >> nth=2")
    page.wait_for_selector(".answered")
    check(page, "list")
    page.goto(f"{one.url}/#nonsense")
    page.wait_for_selector("#main .quiet")
    check(page, "trouble")
    _enter(page, one)
    page.wait_for_selector("table")
    check(page, "admin")
    assert [text for text in person.noted if "401" not in text] == []


def _tab(page, words):
    """Go to what has these words or this name by the tab key alone."""
    reached = "document.activeElement.id || document.activeElement.textContent"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(reached) == words:
            return
    pytest.fail(f"no key leads to {words!r}")


def _by_key(page, words):
    _tab(page, words)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(
    ("view", "scheme"),
    [("phone", "dark"), ("desktop", "light"), ("zoomed", "dark"), ("small", "light")],
)
def test_a_preview_a_budget_and_a_move_are_accessible_by_keys_only(
    site, visit, check, view, scheme
):
    size = {"viewport": dict(zip(("width", "height"), _VIEWS[view], strict=True))}
    how = {"color_scheme": scheme, "service_workers": "block", **size}
    one = site(questions=2, project="Kitchen", project_epsilon=2.0)
    link, old, new = one.link(), visit(**how), visit(**how)
    page = old.page
    page.goto(link.replace("#", "?preview#"))
    page.wait_for_selector(".demonstration")
    check(page, "preview")
    page.goto(link)
    page.wait_for_selector(".demonstration")
    _by_key(page, "Begin")
    page.wait_for_selector(".question")
    old.answer()
    old.settled()
    _by_key(page, "Your budget")
    page.wait_for_selector(".wallet")
    check(page, "budget")
    _by_key(page, "How it works")
    page.wait_for_selector(".demonstration")
    _by_key(page, "Go on with another device")
    page.wait_for_selector("text=This device then stops")
    check(page, "before a move")
    page.route("**/api/move", lambda route: route.abort())
    _by_key(page, "Stop here and show a code")
    page.wait_for_selector("main .warning")
    check(page, "locked")
    page.unroute("**/api/move")
    _by_key(page, "Show a new code")
    code = page.inner_text("main .spelled")
    check(page, "a code")
    new.page.goto(one.url)
    new.page.wait_for_selector("#code")
    check(new.page, "asked for a code")
    _tab(new.page, "code")
    for typed in ("wrong", code):
        new.page.keyboard.press("Control+a")
        new.page.keyboard.type(typed)
        new.page.keyboard.press("Enter")
        if typed == "wrong":
            new.page.wait_for_selector(".gate .warning:has-text('does not work')")
            check(new.page, "a wrong code")
    new.page.wait_for_selector(".demonstration")
    page.wait_for_selector("h1:has-text('has moved')")
    check(page, "moved")
    _by_key(new.page, "Begin")
    new.answer()
    new.page.wait_for_selector("h1:has-text('Thank you')")
    _by_key(new.page, "Your budget")
    new.page.wait_for_selector(".wallet")
    check(new.page, "the end")


def test_texts_are_shown_as_texts(site, visit):
    person = visit()
    page = person.page
    one = site(**_STUDY)
    page.on("dialog", lambda _: pytest.fail("a text was run"))
    person.begin(one.link())
    seen = []
    for _ in range(3):
        seen.append(_texts(page))
        assert page.evaluate("document.querySelectorAll('body script, img, b, i').length") == 0
        assert page.title() == _STUDY["title"]
        _next(page, "1")
        page.wait_for_function("(t) => document.body.textContent !== t", arg=seen[-1])
        page.wait_for_selector(".pending", state="detached")
    page.wait_for_selector(".settled")
    page.click("nav button >> nth=2")
    page.wait_for_selector(".answered")
    seen.append(_texts(page))
    _enter(page, one)
    page.wait_for_selector("table")
    seen.append(_texts(page))
    whole = "\n".join(seen)
    for text in ("<script>alert(1)</script>", "<b>bold</b>", "<b>judge</b>", _STUDY["title"]):
        assert text in whole
    assert "onerror=alert(2)" in seen[-1]
    assert person.noted == []


def test_keys_focus_and_announcements(site, visit):
    person = visit()
    page = person.page
    person.begin(site(questions=15).link())
    focused = "document.activeElement.className || document.activeElement.tagName"
    assert page.evaluate(focused) == "H1"
    for key, words in (
        ("1", "answer 1"),
        ("2", "answer 2"),
        ("ArrowLeft", "answer 1"),
        ("ArrowRight", "answer 2"),
        ("0", "equally good"),
        ("t", "equally good"),
        ("S", "not to say"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(".pending")
        assert words in page.inner_text("#announcer")
        assert "send" in page.evaluate(focused)
    page.keyboard.press("Escape")
    assert "choose" in page.evaluate(focused)
    assert page.inner_text("#announcer") == "Taken back. Nothing was sent."
    page.keyboard.press("Enter")  # on the button that has the focus: it chooses, and no more
    page.wait_for_selector(".pending")
    assert page.inner_text("h1") == "Question 1 of 15"
    page.keyboard.down("Enter")
    page.wait_for_function(
        "() => document.querySelector('h1').textContent.startsWith('Question 2')"
    )
    assert page.inner_text("#announcer") == ""
    assert page.evaluate(focused) == "H1"
    page.keyboard.up("Enter")
    page.keyboard.press("Control+1")
    page.keyboard.press("x")
    assert page.locator(".pending").count() == 0
    page.click(".shortcuts")
    page.keyboard.press("1")
    assert page.locator(".pending").count() == 0
    assert page.locator(".keys").is_hidden()
    page.reload()
    page.wait_for_selector(".question")
    page.keyboard.press("1")
    assert page.locator(".pending").count() == 0  # the wish is kept


def test_a_held_enter_key_never_chooses_and_sends_in_one_go(site, visit):
    person = visit()
    page = person.page
    person.begin(site(questions=15).link())
    page.focus(".choose >> nth=0")
    for _ in range(5):
        page.keyboard.down("Enter")  # the first one presses, the others repeat
    page.keyboard.up("Enter")
    assert page.locator(".pending").count() == 1
    assert page.inner_text("h1") == "Question 1 of 15"


def test_the_language_can_be_changed_while_a_choice_is_open(site, visit):
    person = visit(locale="de-AT")
    page = person.page
    page.goto(site(questions=15).link())
    page.wait_for_selector(".demonstration")
    assert page.evaluate("document.documentElement.lang") == "de"
    page.click("#main .primary")
    page.keyboard.press("1")
    page.select_option("select", "en")
    assert page.evaluate("document.documentElement.lang") == "en"
    assert "You chose answer 1" in page.inner_text(".pending")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.reload()
    page.wait_for_selector(".question")
    assert page.inner_text("h1") == "Question 1 of 15"


def test_the_demonstration_tosses_real_coins_on_made_up_answers(site, visit):
    person = visit()
    page = person.page
    page.goto(site(questions=15).link())
    page.wait_for_selector(".demonstration")
    told = set()
    for _ in range(12):
        flipped = page.locator(".grid .flipped").count()
        words = page.inner_text(".told")
        assert f"Turned around this time: {flipped} of 100." in words
        assert page.locator(".grid .cell").count() == 100
        told.add(words)
        page.click(".demonstration button")
    assert len(told) > 1
    main = page.inner_text("main")
    assert "about 1 in 4 of your answers" in main
    assert "26.8%" in main
    assert "at most 73.2% sure" in main
    assert person.stored("answers") == []


def test_no_motion_for_those_who_asked_for_none(site, visit):
    person = visit(reduced_motion="reduce")
    person.begin(site(questions=15).link())
    moving = """() => [...document.querySelectorAll("*")].filter(
      (one) => getComputedStyle(one).transitionDuration !== "0s").length"""
    assert person.page.evaluate(moving) == 0


def test_the_admin_page_forgets_its_token_and_hands_out_the_file(site, visit):
    one = site(**_STUDY)
    someone = visit()
    someone.begin(one.link())
    someone.answer()
    someone.settled()
    person = visit(accept_downloads=True)
    page = person.page
    _enter(page, one)
    page.wait_for_selector("table")
    assert page.url == f"{one.url}/admin"
    with page.expect_download() as got:
        page.click(".actions .primary")
    with zipfile.ZipFile(io.BytesIO(got.value.path().read_bytes())) as packed:
        assert sorted(packed.namelist()) == ["answers.jsonl", "answers.manifest.json"]
    assert page.inner_text("#announcer") == "The answers were downloaded."
    page.click(".actions .quiet")
    page.wait_for_selector("table")
    left = page.evaluate(
        "async () => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie,"
        " history.state, (await indexedDB.databases()).map((one) => one.name)])"
    )
    assert one.admin not in left
    assert one.admin not in page.content()
    page.reload()
    page.wait_for_selector(".gate")
    assert "paste the admin token" in page.inner_text("main")
    assert person.noted == []


def test_nothing_is_asked_of_any_other_place(site, visit):
    one = site(questions=15)
    person, asked = visit(), []
    person.context.on("request", lambda request: asked.append(request.url))
    person.begin(one.link())
    person.answer()
    person.settled()
    token = re.compile(r"[A-Za-z0-9_-]{43}")
    assert all(address.startswith(one.url) for address in asked)
    assert not any(token.search(address.partition("#")[0]) for address in asked)
    assert person.context.cookies() == []


@pytest.mark.parametrize("weak", [False, True])
def test_a_promise_that_protects_next_to_nobody_is_told_before_the_first_answer(site, visit, weak):
    one = site(questions=3, epsilon=7.0, accept_weak=True) if weak else site(questions=15)
    person = visit()
    person.page.goto(one.link())
    person.page.wait_for_selector("h2")
    assert ("next to nothing of your taste stays hidden" in _texts(person.page)) == weak


def test_languages_say_the_same_things(page_folder):
    study = pytest.importorskip("sordino.collection.study").Study
    known = {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in (page_folder / "languages").glob("*.json")
    }
    (offered,) = (one.default for one in fields(study) if one.name == "languages")
    assert set(known) == set(offered)
    places = {
        code: {key: sorted(re.findall(r"\{\w+\}", text)) for key, text in words["texts"].items()}
        for code, words in known.items()
    }
    for code, words in known.items():
        assert words["code"] == code
        assert places[code] == places["en"]
        assert all(text.strip() for text in words["texts"].values())


def test_every_text_that_the_page_asks_for_is_there_and_used(page_folder):
    texts = json.loads((page_folder / "languages" / "en.json").read_text("utf-8"))["texts"]
    source = "\n".join(path.read_text("utf-8") for path in page_folder.glob("*.js"))
    asked = set(re.findall(r'"([a-z]+(?:\.[a-z0-9]+)+)"', source))
    asked -= {name for name in asked if name.endswith(".js")}
    assert asked <= set(texts)
    made = ("error.", "role.", "nav.", "pending.", "admin.", "question.", "number", "demo.")
    made += ("explain.asked.", "explain.lead.", "feedback.")
    assert {key for key in texts if not key.startswith(made)} <= asked | {"number"}


def test_every_refusal_of_the_service_has_words(page_folder):
    refusals = pytest.importorskip("sordino.collection.refusals").REFUSALS
    texts = json.loads((page_folder / "languages" / "en.json").read_text("utf-8"))["texts"]
    never_seen = {"not-found", "method-not-allowed", "too-large", "not-json"}
    assert {f"error.{code}" for code in set(refusals) - never_seen} <= set(texts)


def test_the_worker_keeps_every_file_that_the_page_loads(page_folder):
    worker = (page_folder / "worker.js").read_text("utf-8")
    listed = set(re.findall(r'"page/([a-z./-]+)"', worker))
    assert all((page_folder / name).is_file() for name in listed)
    reached, todo = set(), {"study.js"}
    while todo:
        name = todo.pop()
        reached.add(name)
        source = (page_folder / name).read_text("utf-8")
        todo |= set(re.findall(r'from "\./([a-z/.-]+js)"', source)) - reached
    assert listed == reached | {"style.css", "icon.svg"}
    assert "/api" not in worker.partition("const FILES")[2]
    assert "__PAGE__" in worker


_SCROLL = """
() => {
  const rolled = document.getElementById("page");
  return [scrollY, document.scrollingElement.scrollHeight > innerHeight, rolled.scrollTop];
}
"""


@pytest.mark.parametrize("planted", [False, True])
def test_how_far_the_page_is_scrolled_is_not_the_browsers_to_keep(site, visit, planted):
    """Browsers write the scroll of a document to disk, and on a phone it tells which is pressed."""
    long = "A long answer.\n" * 60
    rows = [{"prompt": f"{i}?", "first": f"1 {long}", "second": f"2 {long}"} for i in range(2)]
    person = visit(viewport={"width": 390, "height": 700})
    page = person.page
    person.begin(site(rows=rows).link())
    if planted:
        style = "html, body, #page { block-size: auto !important; overflow: visible !important; }"
        page.evaluate("(css) => document.styleSheets[0].insertRule(`@media all { ${css} }`)", style)
    page.locator(".answer .choose").nth(1).click()
    page.wait_for_selector(".pending")
    outside, rolls, inside = page.evaluate(_SCROLL)
    assert (outside > 0 and rolls) if planted else (outside, rolls) == (0, False)
    assert planted or inside > 100  # it was scrolled, and the browser does not know
