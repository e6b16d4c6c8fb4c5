"""The site from a disk, in a real browser: it answers questions, and everybody can read it."""

import pytest

QUESTIONS = {
    "how do I choose epsilon": "noise.html",
    "dpo loss privacy": "traps/dpo-label-smoothing.html",
    "ratings with 1 to 5 stars": "howto/ratings.html",
    "leaderboard of models with confidence intervals": "ranking.html",
    "budget exceeded exit code": "files.html",
    "what is not hidden": "threat-model.html",
    "collect judgments from people on a web page": "howto/collect.html",
    "data larger than memory": "howto/cluster.html",
    "read_pairs": "reference/preferences.html",
    "audit a file that claims to be private": "auditing.html",
}
SEEN = ("index", "noise", "howto/ratings", "reference/mechanisms", "cli")


@pytest.fixture(scope="module")
def page(browser, built_site):
    opened = browser.new_page()
    opened.goto((built_site / "index.html").as_uri())
    yield opened
    opened.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_by_one_of_the_first_three_hits(page, built_site, question):
    """Without a server: the index and what searches it lie beside the pages."""
    page.fill(".md-search__input", "")
    page.dispatch_event(".md-search__input", "keyup")
    page.wait_for_function("() => !document.querySelector('.md-search-result__item')")
    page.fill(".md-search__input", question)
    page.dispatch_event(".md-search__input", "keyup")
    page.wait_for_selector(".md-search-result__item > a", state="attached")
    links = page.eval_on_selector_all(".md-search-result__item > a", "all => all.map(a => a.href)")
    base = built_site.as_uri() + "/"
    hits = dict.fromkeys(link.partition("?")[0].partition("#")[0] for link in links)
    assert QUESTIONS[question] in [hit.removeprefix(base) for hit in hits][:3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SEEN)
def test_nobody_is_kept_from_reading_a_page(browser, built_site, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for width in (1280, 390):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        page = context.new_page()
        asked = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((built_site / f"{name}.html").as_uri())
        page.wait_for_load_state("networkidle")
        found = axe.run(page).response["violations"]
        serious = [each for each in found if each["impact"] in {"serious", "critical"}]
        assert serious == [], [(each["id"], each["nodes"][0]["html"]) for each in serious]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        context.close()
