"""People answer on the page, offline too; each answer is randomized once, kept, and stored once."""

import time

import pytest

from .conftest import named

_KEEP = "Nothing is waiting"


def _person(site, before):
    """Return the stored answers that are new."""
    return [row for row in site.rows() if row not in before]


def _heading(page, text):
    """Wait for a page with this heading."""
    page.wait_for_function("(t) => document.querySelector('h1')?.textContent.includes(t)", arg=text)


def test_fifteen_answers_offline_and_online_are_stored_once_each(site, visit):
    one = site(questions=15)
    before, person = one.rows(), visit()
    link = one.link()
    person.begin(link)
    assert "#" not in person.page.url  # the invitation has left the address bar
    for place in range(10):
        person.answer("12"[place % 2])
    person.context.set_offline(True)
    for place in range(5):
        person.answer("1s0t2"[place])
    _heading(person.page, "Almost done")
    person.page.wait_for_timeout(2500)
    assert "No connection" in person.page.inner_text("#foot")
    assert len(_person(one, before)) <= 10
    memoized = person.stored("answers")
    person.context.set_offline(False)
    _heading(person.page, "Thank you")
    assert "You may close this page" in person.page.inner_text("main")
    rows = _person(one, before)
    assert len(rows) == len({row[1] for row in rows}) == 15
    assert {(row[3], row[1], row[4]) for row in rows} == {
        (record["id"], record["question"], record["answer"]) for record in memoized
    }
    assert person.stored("queue") == []
    assert [text for text in person.noted if "ERR_INTERNET_DISCONNECTED" not in text] == []


def test_a_reload_goes_on_from_storage_with_and_without_a_connection(site, visit):
    one = site(questions=15)
    person = visit()
    person.begin(one.link())
    for _ in range(3):
        person.answer()
    memoized = person.stored("answers")
    person.page.reload()
    _heading(person.page, "Question 4 of 15")
    person.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    person.page.wait_for_function("() => caches.keys().then((names) => names.length === 1)")
    person.context.set_offline(True)
    person.page.reload()
    _heading(person.page, "Question 4 of 15")
    assert person.page.inner_text("nav button >> nth=0") == "Questions"  # the words are kept too
    assert person.stored("answers") == memoized
    person.answer()
    person.context.set_offline(False)
    person.settled()
    assert len(person.stored("answers")) == 4


def test_a_choice_that_was_not_sent_is_gone_after_a_reload(site, visit):
    one = site(questions=15)
    before, person = one.rows(), visit()
    person.begin(one.link())
    texts = person.page.locator(".answer .passage").all_inner_texts()
    person.page.keyboard.press("1")
    person.page.wait_for_selector(".pending")
    person.page.reload()
    _heading(person.page, "Question 1 of 15")
    assert person.page.locator(".pending").count() == 0
    assert person.page.locator(".answer .passage").all_inner_texts() == texts  # the same sides
    assert person.stored("answers") == []
    assert _person(one, before) == []


def test_undo_before_sending_draws_nothing(site, visit):
    person = visit()
    person.context.add_init_script(
        """globalThis.drawn = 0;
        const real = crypto.getRandomValues.bind(crypto);
        crypto.getRandomValues = (bytes) => { drawn += 1; return real(bytes); };"""
    )
    page = person.page
    person.begin(site(questions=15).link())
    before = page.evaluate("drawn")
    for key, undo in (("1", "u"), ("2", "Escape"), ("ArrowLeft", "U"), ("0", "u"), ("s", "Escape")):
        page.keyboard.press(key)
        page.wait_for_selector(".pending")
        page.keyboard.press(undo)
        page.wait_for_selector(".pending", state="detached")
    page.click(".choose >> nth=1")
    page.click(".pending .quiet")
    assert page.locator(".choose[aria-pressed=true]").count() == 0
    page.click(".choose >> nth=1")
    page.click("nav button >> nth=1")  # leaving takes the choice back as well
    after_leaving = page.evaluate("drawn")  # the demonstration has coins of its own
    page.click("#main .primary")
    assert page.locator(".pending").count() == 0
    assert page.evaluate("drawn") == after_leaving
    assert after_leaving == before + 100
    assert person.stored("answers") == person.stored("queue") == []
    person.answer()
    assert page.evaluate("drawn") == after_leaving + 2  # one coin and one id


def test_a_sent_answer_cannot_be_changed_where_the_study_says_so(site, visit):
    person = visit()
    person.begin(site(questions=15).link())
    person.answer()
    person.page.click("nav button >> nth=2")
    main = person.page.inner_text("main")
    assert "cannot be changed" in main
    assert person.page.locator(".answered li").count() == 1
    assert person.page.locator(".answered button").count() == 0


def test_a_changed_mind_is_a_new_answer_and_is_paid(site, visit):
    one = site(questions=4, cap=5, changes="paid")
    before, person = one.rows(), visit()
    page = person.page
    person.begin(one.link())
    for _ in range(2):
        person.answer()
    page.click("nav button >> nth=2")
    page.click(".answered button >> nth=0")
    _heading(page, "once more")
    page.click("text=Leave it as it is")
    _heading(page, "Earlier answers")
    page.click(".answered button >> nth=0")
    person.answer("2")
    _heading(page, "Question 3 of 4")
    person.answer()
    assert "4 of 5 answers used" in page.inner_text("#foot")
    page.click("nav button >> nth=2")
    page.wait_for_selector(".answered:not(:has-text('Waiting'))")  # the list follows the ticks
    assert page.locator(".answered :text('Sent.')").count() == 3
    assert "costs one more of your 1" in page.inner_text(".answered button >> nth=0")
    page.click("main .primary")
    person.answer()
    _heading(page, "Thank you")
    page.click("nav button >> nth=2")
    assert page.locator(".answered button").count() == 0  # nothing is left to pay with
    revisions = sorted(
        (record["question"], record["revision"]) for record in person.stored("answers")
    )
    assert len(revisions) == 5
    rows = _person(one, before)
    assert sorted(row[2] for row in rows) == [1, 1, 1, 2]
    last = {record["question"]: record for record in person.stored("answers")}
    assert {row[3] for row in rows} == {record["id"] for record in last.values()}


def test_the_page_itself_keeps_to_the_cap(site, visit):
    one = site(questions=4, cap=2)
    person = visit()
    person.page.route(
        "**/api/open",
        lambda route: _with_more_questions(route, one),
    )
    person.begin(one.link())
    person.answer()
    person.answer()
    assert "used all your 2 answers" in person.page.inner_text("main")
    assert len(person.stored("answers")) == 2


def _with_more_questions(route, one):
    """Answer as a server that asks more than the cap allows."""
    body = route.fetch().json()
    body["questions"] += [named(f"More {i}?") for i in range(3)]
    route.fulfill(json=body)


def test_two_tabs_cannot_release_twice(site, visit):
    one = site(questions=15)
    before, person = one.rows(), visit()
    first = person.page
    person.begin(one.link())
    second = person.context.new_page()
    person.listen(second)
    second.goto(one.url)
    second.wait_for_selector(".question")
    for tab, key in ((first, "1"), (second, "2")):
        tab.keyboard.press(key)
        tab.wait_for_selector(".pending")
    enter = "document.querySelector('.send').click()"
    first.evaluate(enter)
    second.evaluate(enter)
    for tab in (first, second):
        _heading(tab, "Question 2 of 15")
    said = [tab.inner_text("#announcer") for tab in (first, second)]
    assert sum("another window" in text for text in said) == 1
    assert len(person.stored("answers")) == 1
    for tab in (first, second):  # whichever of them has sent it
        tab.wait_for_selector(f"#foot :text('{_KEEP}')")
    assert len(_person(one, before)) == 1
    # Not even many attempts at once, inside one page, draw more than one coin.
    outcomes = first.evaluate(
        """async () => {
          const { openMemory } = await import("/page/memory.js");
          const memories = await Promise.all([1, 2, 3, 4].map(() => openMemory()));
          const question = "0".repeat(32);
          const one = { question, ask: "pair", revision: 1, judgment: [1, 1] };
          const terms = { threshold: String(1n << 62n), die: null, cap: 9 };
          const all = memories.flatMap((m) => [m.release(one, terms), m.release(one, terms)]);
          return Promise.all(all);
        }"""
    )
    assert sorted(outcomes) == ["already"] * 7 + ["released"]
    assert person.noted == []


def test_the_queue_survives_a_server_that_is_down_killed_and_back(site, visit):
    one = site(questions=6, title="Killed")
    before, person = one.rows(), visit()
    page = person.page
    person.begin(one.link())
    down = {"error": {"code": "database-down", "message": "down"}}
    page.route(
        "**/api/answers",
        lambda route: route.fulfill(status=503, headers={"Retry-After": "1"}, json=down),
    )
    for _ in range(3):
        person.answer()
    page.wait_for_selector("text=takes a short break")
    assert len(person.stored("queue")) == 3
    page.unroute("**/api/answers")
    one.kill()
    person.answer()
    page.wait_for_function(
        "() => document.getElementById('foot').textContent.includes('No connection')"
    )
    page.reload()  # the page comes from the device, the server is gone
    _heading(page, "Question 5 of 6")
    assert len(person.stored("queue")) == 4
    one.start()
    person.answer()
    person.answer()
    page.evaluate("window.dispatchEvent(new Event('online'))")
    _heading(page, "Thank you")
    rows = _person(one, before)
    assert {row[3] for row in rows} == {record["id"] for record in person.stored("answers")}
    assert len(rows) == 6


def test_an_answer_whose_confirmation_was_lost_is_sent_again_as_it_was(site, visit):
    one = site(questions=15)
    before, person = one.rows(), visit()
    page, sent = person.page, []
    person.begin(one.link())

    def lose(route):
        sent.append(route.request.post_data)
        route.fetch()  # the server stores it
        route.abort()

    page.route("**/api/answers", lose, times=1)
    page.on("request", lambda r: "/api/answers" in r.url and sent.append(r.post_data))
    person.answer()
    person.settled()
    assert len(set(sent)) == 1
    assert len(sent) >= 2
    assert len(_person(one, before)) == 1


@pytest.mark.parametrize("year", [1971, 2099])
def test_a_wrong_clock_changes_nothing(site, visit, year):
    one = site(questions=15)
    before, person = one.rows(), visit()
    person.page.clock.install(time=f"{year}-06-01T12:00:00Z")
    person.begin(one.link())
    person.answer()
    for _ in range(6):
        person.page.clock.run_for(1000)
        time.sleep(0.2)
    assert _KEEP in person.page.inner_text("#foot")
    assert len(_person(one, before)) == 1


def test_questions_that_are_chosen_as_people_answer_come_without_a_pause(site, visit):
    rows = [
        {"prompt": f"Question {i}?", "candidates": [f"{i} {word}" for word in "abc"], "ask": "pair"}
        for i in range(6)
    ]
    one = site(rows=rows, choose="optimistic", cap=7)
    person = visit()
    person.begin(one.link())
    seen = set()
    for number in range(7):
        person.page.wait_for_selector(f"h1:text('Question {number + 1} of 7')")
        seen.add(person.page.inner_text(".prompt") + person.page.inner_text(".pair"))
        person.answer("1")
    person.settled()
    assert "Thank you" in person.page.inner_text("h1")
    assert len(seen) == len(one.rows()) == 7
    assert len(person.stored("questions")) == 7


def test_a_study_that_asked_all_its_questions_at_the_start_has_no_more(site, visit):
    """Whatever a service adds to a reply, nobody is asked more than they were shown at first."""
    one, other = site(questions=2), site(questions=3)
    kept = visit()
    kept.begin(other.link())
    more = kept.stored("questions")
    person = visit()
    person.begin(one.link())
    asked = [row["id"] for row in person.stored("questions")]

    def add(route):
        reply = route.fetch()
        told = reply.json() | {"questions": [row for row in more if row["id"] not in asked]}
        route.fulfill(response=reply, json=told)

    person.page.route("**/api/answers", add)
    for _ in asked:
        person.answer("1")
    person.settled()
    assert sorted(row["id"] for row in person.stored("questions")) == sorted(asked)
