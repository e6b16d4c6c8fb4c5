"""A study goes from one device to another: whatever crashes, never two devices that both toss."""

import pytest

from .test_collect_answers import _heading
from .test_collect_refusals import trouble

_GOES = "Go on with another device"
_BEGIN = "text=Stop here and show a code"
_CODE = "text=/Stop here and show a code|Show a new code/"


def started(site, visit, answers=2, **more):
    """Return a study, a person who answered a few of its questions, and how to alter the page."""
    one = site(questions=6, **more)
    person = visit(service_workers="block")
    person.begin(one.link())
    for _ in range(answers):
        person.answer()
    person.settled()
    return one, person


def move(person):
    """Go to the view from which a study moves."""
    person.page.click("nav button >> nth=1")
    person.page.click(f"main >> text={_GOES}")
    _heading(person.page, _GOES)


def shown(person):
    """Lock a device and return the code that it shows."""
    move(person)
    person.page.click(_BEGIN)
    return person.page.inner_text("main .spelled")


def arrive(visit, one, code):
    """Open a link with a code on a new device, and begin."""
    other = visit(service_workers="block")
    other.page.goto(f"{one.url}/#{code}")
    other.page.click("#main .primary")
    return other


def coins(*people):
    """Return how often a coin was tossed for each question, on all devices of a person."""
    tossed = [row["question"] for one in people for row in one.stored("answers") if "id" in row]
    return {question: tossed.count(question) for question in tossed}


def finish(one, person, before):
    """Answer what is left, and check that each question is stored once, for one new person."""
    while "Question" in person.page.inner_text("h1"):
        person.answer()
    person.settled()
    rows = [row for row in one.rows() if row not in before]
    assert len({row[0] for row in rows}) == 1
    assert sorted(row[1] for row in rows) == sorted({row[1] for row in rows})
    assert len(rows) == 6


def test_a_study_moves_by_a_typed_code_and_no_question_comes_twice(site, visit):
    before = site(questions=6).rows()
    one, old = started(site, visit)
    code = shown(old)
    assert "Answers that go with you: 2" in old.page.inner_text("main")
    old.page.click("nav button >> nth=0")  # it answers nothing more
    _heading(old.page, _GOES)
    new = visit()
    new.page.goto(one.url)
    assert "link from your invitation" in trouble(new.page)
    new.page.fill("#code", "wrong")
    new.page.keyboard.press("Enter")
    assert "does not work" in new.page.inner_text(".gate .warning")
    new.page.fill("#code", code.lower().replace("-", " ").replace("0", "o"))
    new.page.keyboard.press("Enter")
    new.page.click("#main .primary")
    _heading(new.page, "Question 3 of 6")
    assert "2 of 6 questions" in new.page.inner_text("#foot")
    _heading(old.page, "The study has moved")
    old.page.reload()
    _heading(old.page, "The study has moved")
    finish(one, new, before)
    assert set(coins(old, new).values()) == {1}


def test_a_device_that_stays_goes_on_and_its_code_is_dead(site, visit):
    before = site(questions=6).rows()
    one, old = started(site, visit)
    code = shown(old)
    old.page.click("text=Stay on this device")
    old.page.click("text=Back to the questions")
    _heading(old.page, "Question 3 of 6")
    new = visit()
    new.page.goto(f"{one.url}/#{code}")
    assert "does not work" in trouble(new.page)
    finish(one, old, before)


def test_a_study_that_went_away_may_come_back(site, visit):
    before = site(questions=6).rows()
    one, old = started(site, visit)
    new = arrive(visit, one, shown(old))
    _heading(new.page, "Question 3 of 6")
    new.answer()
    new.settled()
    _heading(old.page, "The study has moved")
    old.page.goto(f"{one.url}/#{shown(new)}")
    _heading(old.page, "Question 4 of 6")
    finish(one, old, before)
    assert set(coins(old, new).values()) == {1}


def test_a_device_that_moved_becomes_no_second_person_by_a_link_for_anybody(site, visit):
    one = site(questions=6, open=True)
    before = one.rows()
    link = one.link()
    old = visit(service_workers="block")
    old.begin(link)
    old.answer()
    old.settled()
    new = arrive(visit, one, shown(old))
    _heading(old.page, "The study has moved")
    asked = []
    for person in (old, new):  # the new one never had the link
        person.page.on("request", lambda request: asked.append(request.url))
    old.page.goto("about:blank")
    old.page.goto(link)
    _heading(old.page, "The study has moved")
    code = shown(new)
    old.page.goto(f"{one.url}/#{code}")
    _heading(old.page, "Question 2 of 6")
    _heading(new.page, "The study has moved")
    new.page.goto("about:blank")
    new.page.goto(link)
    _heading(new.page, "The study has moved")
    assert [url for url in asked if url.endswith("/api/open")] == []
    finish(one, old, before)


def test_a_new_link_opens_on_a_device_that_the_study_had_left(site, visit):
    from sordino.collection.answers import handle_of, reissue
    from sordino.collection.database import frozen, open_database
    from sordino.collection.study import read_study

    before = site(questions=6).rows()
    one = site(questions=6)
    old, link = visit(service_workers="block"), one.link()
    old.begin(link)
    old.answer()
    old.settled()
    new = arrive(visit, one, shown(old))
    new.page.wait_for_selector(".question")
    new.answer()
    new.settled()
    _heading(old.page, "The study has moved")
    study = read_study(one.folder / "study.toml")
    engine = frozen(open_database(study.database_url), study, create=False)
    token = reissue(engine, study, handle_of(study, link.rpartition("#")[2]), days=1)
    engine.dispose()
    old.page.goto(f"{one.url}/#{token}", wait_until="commit")  # the page then loads itself anew
    _heading(old.page, "Question 3 of 6")
    finish(one, old, before)


@pytest.mark.parametrize(
    ("path", "arrives"),
    [("**/api/move", False), ("**/api/move", True)],
    ids=["the request for a code is lost", "the code is lost on its way"],
)
def test_without_a_code_the_device_stays_locked_and_can_ask_again_or_stay(
    site, visit, path, arrives
):
    before = site(questions=6).rows()
    one, old = started(site, visit)

    def lose(route):
        if arrives:
            route.fetch()
        route.abort()

    old.page.route(path, lose)
    move(old)
    old.page.click(_BEGIN)
    old.page.wait_for_selector("text=This device has stopped")
    old.page.reload()  # a crash: the lock is on the disk
    old.page.wait_for_selector("text=This device has stopped")
    assert old.page.locator(".question").count() == 0
    old.page.click("text=Stay on this device")  # nor does it go on before the service knows
    old.page.wait_for_selector("main .warning")
    assert old.page.locator("text=Stay on this device").count() == 1
    old.page.unroute(path)
    new = arrive(visit, one, shown_again(old))
    finish(one, new, before)
    assert set(coins(old, new).values()) == {1}


def shown_again(person):
    person.page.click("text=Show a new code")
    return person.page.inner_text("main .spelled")


@pytest.mark.parametrize("way", ["code", "invitation"])
def test_a_new_device_that_did_not_hear_the_answer_asks_again(site, visit, way):
    """The service has bound it; what it is told then must count what the old device answered."""
    one = site(questions=6)
    link, before = one.link(), one.rows()
    old = visit(service_workers="block")
    old.begin(link)
    old.answer()
    old.settled()
    code = shown(old)
    new = visit(service_workers="block")

    def lose(route):
        route.fetch()
        route.abort()

    new.page.route("**/api/claim", lose)
    new.page.goto(f"{one.url}/#{code}")
    trouble(new.page)
    new.page.unroute("**/api/claim")
    new.page.goto("about:blank")
    new.page.goto(f"{one.url}/#{code}" if way == "code" else link)
    new.page.click("#main .primary")
    _heading(new.page, "Question 2 of 6")
    finish(one, new, before)
    assert set(coins(old, new).values()) == {1}


def test_the_old_device_first_sends_what_waits(site, visit):
    one = site(questions=6)
    person = visit(service_workers="block")
    person.page.route("**/api/answers", lambda route: route.abort())
    person.begin(one.link())
    person.answer()
    move(person)
    assert "Still waiting: 1" in person.page.inner_text("main")
    assert person.page.locator(_BEGIN).count() == 0
    person.page.unroute("**/api/answers")
    person.page.wait_for_selector(_BEGIN)


def test_a_device_that_takes_part_claims_nothing(site, visit):
    one, old = started(site, visit)
    other = visit(service_workers="block")
    other.begin(one.link())
    other.page.goto(f"{one.url}/#{shown(old)}")
    assert "takes part in this study already" in trouble(other.page)
    other.page.click("text=Go on with the study")
    _heading(other.page, "Question 1 of 6")


_MUTANTS = {  # each lets two devices toss for one question, or loses an answer
    "a lock that no coin looks at": ("memory.js", "if (moving !== undefined) return moving;", ""),
    "a lock over what waits": ("memory.js", 'if (await done(queue.count())) return "waiting";', ""),
    "on before the service knows": (
        "moving.js",
        'await this.#ask("stay");',
        'this.#ask("stay").catch(() => {});',
    ),
    "what the old device answered is forgotten": ("memory.js", "of stored) {", "of []) {"),
    "by an open invitation": (
        "study.js",
        "const stored = answer.stored ?? [];",
        "const stored = [];",
    ),
}


def alter(page, mutant):
    name, before, after = mutant

    def change(route):
        source = route.fetch().text()
        assert source.count(before) == 1, before
        route.fulfill(body=source.replace(before, after), content_type="text/javascript")

    page.route(f"**/page/{name}", change)


def two_devices(site, visit, mutant=None):
    """Move with a second window that goes on and with a lost word; return how often coins fell."""
    one = site(questions=6)
    old, new = visit(service_workers="block"), visit(service_workers="block")
    for person in (old, new) if mutant else ():
        alter(person.page, mutant)
    old.begin(one.link())
    old.answer()
    old.settled()
    second = old.context.new_page()
    if mutant:
        alter(second, mutant)
    second.goto(one.url)
    second.wait_for_selector(".question")
    move(old)
    old.context.route("**/api/answers", lambda route: route.abort())
    second.keyboard.press("1")
    second.keyboard.press("Enter")  # this waits: the lock must not be taken now
    second.wait_for_function("() => document.getElementById('foot').textContent.includes(': 1')")
    old.page.evaluate(_LOCK)
    locked = old.page.evaluate(_MOVING)
    old.context.unroute("**/api/answers")
    second.wait_for_function(
        "() => document.getElementById('foot').textContent.includes('Nothing is waiting')"
    )
    old.page.wait_for_selector(_CODE, timeout=5000)
    old.page.click(_CODE)
    code = old.page.inner_text("main .spelled")
    told = old.page.evaluate(_MOVING)
    second.evaluate(_TOSS)
    old.page.route("**/api/move", lambda route: route.abort())
    old.page.click("text=Stay on this device")
    old.page.wait_for_timeout(300)
    stayed = old.page.evaluate(_MOVING)
    new.page.goto(f"{one.url}/#{code}")
    new.page.click("#main .primary")
    new.page.wait_for_selector("h1:has-text('Question')")
    heading = new.page.inner_text("h1")
    new.answer()
    counts = coins(old, new)
    return {
        "locked while an answer waits": locked is not None,
        "unlocked beside a code": told != "moving" or stayed != "moving",
        "two coins": max(counts.values()) > 1 or heading != "Question 3 of 6",
    }


# What the page itself does in a second window whose view is older than the lock.
_LOCK = """async () => {
  const { openMemory, whichStudy } = await import("/page/memory.js");
  const memory = await openMemory(await whichStudy(null));
  return memory.lock();
}"""
_MOVING = """async () => {
  const { openMemory, whichStudy } = await import("/page/memory.js");
  return (await (await openMemory(await whichStudy(null))).setting("moving")) ?? null;
}"""
_TOSS = """async () => {
  const { openMemory, whichStudy } = await import("/page/memory.js");
  const memory = await openMemory(await whichStudy(null));
  const { terms, questions } = await memory.recall();
  const given = (await memory.progress()).given.map(({ question }) => question);
  const next = questions.find(({ id }) => !given.includes(id));
  return memory.release({ question: next.id, ask: "pair", revision: 1, judgment: [1, 1] }, terms);
}"""


def test_two_windows_and_two_devices_toss_one_coin_for_each_question(site, visit):
    found = two_devices(site, visit)
    assert not any(found.values()), found


@pytest.mark.parametrize("name", _MUTANTS)
def test_planted_bugs_of_moving_are_seen(site, visit, name):
    found = two_devices(site, visit, _MUTANTS[name])
    assert any(found.values()), found
