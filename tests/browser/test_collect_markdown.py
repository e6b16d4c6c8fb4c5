"""Answers are read as Markdown, and no text can act, load, lead away or hide behind a name."""

import base64
import json
import struct
import time
import zlib

import pytest

from .conftest import CHROMIUM


def _picture():
    """Return a PNG of four pixels as a data URL."""

    def part(kind, raw):
        return struct.pack(">I", len(raw)) + kind + raw + struct.pack(">I", zlib.crc32(kind + raw))

    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(6) for _ in range(2)))
    raw = part(b"IHDR", head) + part(b"IDAT", pixels) + part(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + raw).decode()


_PICTURE = _picture()
_AWAY = "https://elsewhere.example"
_EVIL = [
    "<script>hit = 1</script><img src=x onerror=hit=1> &amp; ${1} {number} \u202e ok",
    "<b>bold</b> <B ONCLICK=hit=1>x</B>",
    "[x](javascript:hit=1) [x](JaVaScRiPt&colon;hit=1) [x](java\nscript:hit=1)",
    "[x](data:text/html,<script>hit=1</script>) <javascript:hit=1>",
    "[x](vbscript:hit) [x](file:///etc/passwd) [x](blob:null/1)",
    f"[x]({_AWAY}/a 'title') <{_AWAY}/b> {_AWAY}/c [x][1]\n\n[1]: {_AWAY}/d",
    f'![x]({_AWAY}/p.png "hit") ![<img onerror=hit=1>]({_AWAY}/q.png) ![x](//elsewhere.example/r)',
    f"[![x]({_AWAY}/p.png)]({_AWAY}/q)",
    '![" onerror="hit=1](x) ![x](x"onerror="hit=1) ![x](</a" onerror="hit=1>)',
    "![x](data:image/svg+xml;base64,PHN2Zy8+) ![x](data:text/html;base64,PHA+) ![x](data:,x)",
    f"![x]({_PICTURE}) ![x]({_PICTURE}#onerror=hit=1) ![x]({_PICTURE}%22onerror=hit=1)",
    "```html\n<script>hit=1</script></code></pre><img src=x onerror=hit=1>\n```",
    '```x"onclick="hit=1" id=main\n</pre>\n```\n\n    <script>hit=1</script>',
    "`</code><script>hit=1</script>` ``<img src=x onerror=hit=1>``",
    "| <script>hit=1</script> | <img src=x onerror=hit=1> |\n|---|:-:|\n| <td onclick=hit=1> | x |",
    "<svg onload=hit=1><a xlink:href=javascript:hit=1><text>x</text></a></svg>",
    "<svg><style><img src=x onerror=hit=1></style></svg><math><mtext><mglyph><style></style>",
    "<math><mi xlink:href=javascript:hit=1>x</mi></math><annotation-xml encoding=text/html><p>",
    f"<style>@import '{_AWAY}/s.css'; * {{ background: url({_AWAY}/b) }}</style>",
    f"<link rel=stylesheet href={_AWAY}/s.css><base href={_AWAY}><meta http-equiv=refresh>",
    f"<iframe srcdoc='<script>hit=1</script>'></iframe><object data={_AWAY}></object><embed src=x>",
    f"<form id=page name=main action={_AWAY}><input name=getElementById autofocus onfocus=hit=1>",
    "<a id=document><a id=document name=body><img name=querySelector id=page>",
    "<template shadowrootmode=open><script>hit=1</script></template><slot name=x></slot>",
    "<noscript><p title='</noscript><img src=x onerror=hit=1>'></noscript><xmp><textarea>",
    "> - 1. > ## <script>hit=1</script>\n\n$$<script>hit=1</script>$$ $<img src=x onerror=hit=1>$",
    "\\(<script>hit=1</script>\\) a<br onclick=hit=1>b<br/>c<!-- <img onerror=hit=1> --><?x?>",
    "<details open ontoggle=hit=1><summary>x</summary></details><video src=x onerror=hit=1>",
    "<a href=//elsewhere.example ping=//elsewhere.example>x</a> &lt;script&gt;hit=1&lt;/script&gt;",
    "[x]: javascript:hit=1\n[x] [constructor] [__proto__] ![toString]\n\n# __proto__ {#main}",
    "###### six\n\n" + ">" * 300 + " deep " + "[" * 300 + "*" * 301,
]

# What is on the page of each text, and what there is that must never be.
_LOOK = """
async ({ texts, wanted }) => {
  const { passage, excerpt } = await import("/page/passage.js");
  const tags = "ARTICLE DIV SPAN P H2 H3 H4 H5 H6 UL OL LI BLOCKQUOTE HR TABLE THEAD TBODY TR TH "
    + "TD EM STRONG S BR CODE PRE IMG BUTTON";
  const names = "class dir start src alt data-language data-name tabindex role aria-label "
    + "aria-expanded type hidden";
  const bad = [];
  const read = texts.map((text) => {
    const place = document.createElement("article");
    place.append(passage(text, (role) => role));
    document.getElementById("main").append(place);
    for (const one of [place, ...place.querySelectorAll("*")]) {
      if (!tags.split(" ").includes(one.tagName)) bad.push(`${text}: ${one.tagName}`);
      for (const { name, value } of one.attributes) {
        const picture = name !== "src" || value.startsWith("data:image/png;base64,");
        if (!names.split(" ").includes(name) || !picture) bad.push(`${text}: ${name}=${value}`);
      }
    }
    const shown = wanted ? place.querySelector(".passage").innerHTML : place.textContent;
    return [shown, excerpt(text)];
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  return { read, bad, hit: "hit" in globalThis };
}
"""


def _noted(person):
    """Return what the page said, but for what a browser says of this test or of a torn picture."""
    ours = ("Service Worker registration blocked", "net::ERR_INVALID_URL")
    return [text for text in person.noted if not any(one in text for one in ours)]


def _look(page, texts, *, wanted=False):
    return page.evaluate(_LOOK, {"texts": texts, "wanted": wanted})


@pytest.fixture
def opened(site, visit, page_folder):
    """Return a maker of pages, on request with planted faults, and what each asked of others."""

    def make(faults=()):
        person, one, away = visit(service_workers="block"), site(questions=15), []
        source = (page_folder / "markdown.js").read_text("utf-8")
        for before, after in faults:
            assert source.count(before) == 1, before
            source = source.replace(before, after)
        answer = {"body": source, "content_type": "text/javascript"}
        person.page.route("**/page/markdown.js", lambda route: route.fulfill(**answer))
        ours = (one.url, "data:")
        person.context.on("request", lambda r: None if r.url.startswith(ours) else away.append(r))
        person.page.on("dialog", lambda _: away.append("a dialog"))
        person.begin(one.link())
        return person, away

    return make


def test_no_text_does_anything(opened):
    person, away = opened()
    talk = [{"role": "<script>hit=1</script>", "content": "\n\n".join(_EVIL)}]
    found = _look(person.page, [*_EVIL, talk])
    assert found["bad"] == []
    assert not found["hit"]
    assert away == _noted(person) == []
    whole = "\n".join(text for text, _ in found["read"])
    for text in ("<script>hit = 1</script><img src=x onerror=hit=1> &", "<b>bold</b>", "{number}",
                 "[x](javascript:hit=1)", f"({_AWAY}/a)", f"{_AWAY}/b", f"{_AWAY}/p.png",
                 "</code></pre><img src=x onerror=hit=1>", "<svg onload=hit=1>", "<style>@import",
                 "<math><mi", "<form id=page", "$$<script>hit=1</script>$$"):  # fmt: skip
        assert text in whole  # it is read, not done
    assert all(len(line) <= 141 and "\n" not in line for _, line in found["read"])
    assert person.page.locator("article a, article [id], article [name]").count() == 0


_MARK = "return /^h[1-5]$/.test(tag) ? `h${Number(tag[1]) + 1}` : tag;"
_HOLES = {
    "a mark makes a frame": (_MARK, 'return tag === "h6" ? "iframe" : tag;'),
    "a mark makes a form that hides the page": (
        _MARK, 'return tag === "h6" ? "form" : tag;',
    ),
    "a picture comes from anywhere": ("if (PICTURE.test(source)) return", "return"),
    "a picture has a second source": ("src: source, alt", f"srcset: '{_AWAY}', src: source, alt"),
    "a text has a name": ('{ class: "address"', '{ id: "page", class: "address"'),
    "a text styles the page": (
        "here.append(made);", 'made.style.position = "fixed"; here.append(made);',
    ),
}  # fmt: skip
_ONE_WALL = ("return DOMPurify.sanitize(whole, KEPT);", "return whole;")


@pytest.mark.parametrize("hole", _HOLES)
def test_behind_a_hole_in_one_wall_stands_the_other(opened, hole):
    person, away = opened([_HOLES[hole]])
    found = _look(person.page, _EVIL)
    assert (found["bad"], found["hit"], away, _noted(person)) == ([], False, [], [])


def test_the_first_wall_holds_alone(opened):
    person, away = opened([_ONE_WALL])
    found = _look(person.page, _EVIL)
    assert (found["bad"], found["hit"], away, _noted(person)) == ([], False, [], [])


@pytest.mark.parametrize("hole", _HOLES)
def test_holes_in_both_walls_are_seen_and_the_policy_still_stops_what_acts(opened, hole):
    person, away = opened([_HOLES[hole], _ONE_WALL])
    found = _look(person.page, _EVIL)
    assert found["bad"]
    assert not found["hit"]
    assert {request.failure for request in away} <= {"csp"}  # the browser was kept from it


_READ = {
    "# A\n## B\n###### C": '<h2 dir="auto">A</h2>\n<h3 dir="auto">B</h3>\n<h6 dir="auto">C</h6>\n',
    "one\ntwo *three* **four** ~~five~~":
        '<p dir="auto">one<br>two <em>three</em> <strong>four</strong> <s>five</s></p>\n',
    "3. a\n4. b\n   - c": '<ol dir="auto" start="3"><li>a\n</li>\n<li>b\n<ul><li>c\n</li>\n</ul>\n'
        "</li>\n</ol>\n",
    "`a_b` $a_b*c$ \\(x\\_1*\\) costs $5 or $6.":
        '<p dir="auto"><code dir="ltr">a_b</code> <code class="formula" dir="ltr">$a_b*c$</code> '
        '<code class="formula" dir="ltr">\\(x\\_1*\\)</code> costs $5 or $6.</p>\n',
    "so\n$$\na_1 *b*\n= c\n$$\nend": '<p dir="auto">so</p>\n'
        '<pre dir="ltr" class="formula scroll" data-name="Formula, to be scrolled">'
        '<code>$$\na_1 *b*\n= c\n$$</code></pre><p dir="auto">end</p>\n',
    "\\[x\\] is\n\n$$ never closed\n\nend": '<p dir="auto">'
        '<code class="formula" dir="ltr">\\[x\\]</code> is</p>\n<p dir="auto">$$ never closed</p>\n'
        '<p dir="auto">end</p>\n',
    f"[here]({_AWAY}) <{_AWAY}>": f'<p dir="auto">here <span class="address" dir="ltr">({_AWAY})'
        f"</span> {_AWAY}</p>\n",
    f"![two]({_PICTURE})": f'<p dir="auto"><img src="{_PICTURE}" alt="two"></p>\n',
    f"![a *chart*]({_AWAY}/x)": '<p dir="auto"><span class="missing">'
        f"[Picture that is not loaded: a chart ({_AWAY}/x)]</span></p>\n",
    "a<br>b<br/>c": '<p dir="auto">a<br>b<br>c</p>\n',
    "| a | b |\n|:-:|--:|\n| 1 | 2 |": '<div class="scroll" data-name="Table, to be scrolled">'
        '<table dir="auto"><thead><tr><th class="center">a</th>\n<th class="right">b</th>\n</tr>\n'
        '</thead>\n<tbody><tr><td class="center">1</td>\n<td class="right">2</td>\n</tr>\n'
        "</tbody>\n</table></div>\n",
    "> *x*\n\n---": '<blockquote dir="auto"><p><em>x</em></p>\n</blockquote>\n<hr>',
    "שלום\n\nhi": '<p dir="auto">שלום</p>\n<p dir="auto">hi</p>\n',
}  # fmt: skip


def test_marks_become_what_they_mean(opened):
    person, _ = opened()
    shown = [text for text, _ in _look(person.page, list(_READ), wanted=True)["read"]]
    assert shown == list(_READ.values())


_LONG = "\n\n".join(
    f"Paragraph *{n}* of a long answer, which goes on for a while." for n in range(40)
)
_CODE = "x = 1  # " + "far to the right " * 20
_ROWS = [
    {"prompt": f"{n}?", "first": f"First {n}\n\n{_LONG}",
     "second": f"Second {n}\n\n```python\n{_CODE}\n```\n\n{_LONG}"}
    for n in range(2)
]  # fmt: skip


def test_what_is_long_folds_and_stays_as_it_was_until_the_next_question(site, visit):
    person = visit(permissions=["clipboard-read", "clipboard-write"], reduced_motion="reduce")
    page = person.page
    person.begin(site(rows=_ROWS).link())
    page.wait_for_selector(".long")
    assert page.locator(".long").count() == 2
    heights = "[...document.querySelectorAll('.answer .body')].map((one) => one.clientHeight)"
    assert max(page.evaluate(heights)) < 720
    tops = "[...document.querySelectorAll('.answer .body')].map((one) => one.scrollTop)"
    assert page.locator(".answer .body[tabindex='0'][role=group][aria-label]").count() == 2
    page.focus(".answer .body >> nth=1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => {tops}[1] > 0")
    assert page.locator(".pending").count() == 0  # arrows that scroll do not choose
    page.wait_for_timeout(500)  # until it stands still
    before = page.evaluate(tops)
    assert before[0] == 0  # each for itself
    page.click(".answer >> nth=0 >> .more")
    assert page.locator(".more[aria-expanded=true]").count() == 1
    assert page.evaluate(heights)[0] > 900
    for key in ("1", "Escape"):
        page.keyboard.press(key)
        page.wait_for_function("() => document.querySelectorAll('.long').length === 1")
        page.wait_for_function(
            f"() => JSON.stringify({tops}) === '{json.dumps(before, separators=(',', ':'))}'"
        )
    code = page.locator(".code button")
    code.click()
    page.wait_for_function("() => document.querySelector('.code button').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == _CODE
    assert page.inner_text("#announcer") == "Copied"
    assert page.locator(".code pre[tabindex='0']").count() == 1  # it scrolls
    person.answer("2")
    page.wait_for_function("() => document.querySelectorAll('.long').length === 2")
    assert page.evaluate(tops) == [0, 0]
    assert person.noted == []


def test_where_the_browser_does_not_copy_the_text_is_selected(site, visit):
    person = visit()
    page = person.page
    page.add_init_script("navigator.clipboard.writeText = () => Promise.reject(new Error('no'));")
    person.begin(site(rows=_ROWS).link())
    page.click(".code button")
    page.wait_for_function("() => getSelection().toString().startsWith('x = 1')")
    assert page.inner_text("#announcer") == "Selected"


def test_a_study_may_show_texts_as_they_are(site, visit):
    rows = [{"prompt": "**p**\n# q", "first": "*a* $x$", "second": f"![x]({_PICTURE})"}]
    person = visit()
    person.begin(site(rows=rows, markdown=False).link())
    texts = set(person.page.locator(".passage").all_inner_texts())
    assert texts == {"**p**\n# q", "*a* $x$", f"![x]({_PICTURE})"}
    assert person.page.locator(".passage *").count() == 0


def test_a_picture_in_a_text_is_shown_without_a_connection_too(site, visit):
    rows = [{"prompt": "?", "first": f"![x]({_PICTURE})", "second": "## b"}]
    person = visit()
    page = person.page
    person.begin(site(rows=rows).link())
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.wait_for_function("() => caches.keys().then((names) => names.length === 1)")
    person.context.set_offline(True)
    page.reload()
    page.wait_for_selector(".answer h3")
    page.wait_for_function("() => document.querySelector('.answer img').naturalWidth === 2")


_INSIDE, _OUTSIDE = 54_321, 43_219  # pixels, numbers that a file has not by chance


def _kept(folder, number):
    """Return whether a number is in a file of a browser."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return any(struct.pack("<i", number) in path.read_bytes() for path in files)


@pytest.mark.deep
def test_how_far_a_text_is_scrolled_is_not_written_to_the_disk(site, browser, tmp_path):
    """A browser keeps scrolls of documents in files; that of a text is looked for beside them."""
    long = "\n".join("x" * 3 for _ in range(6000))
    one = site(rows=[{"prompt": "?", "first": f"1\n{long}", "second": "2"}])
    flags = ["--no-sandbox", "--disable-dev-shm-usage", "--headless=new"]
    context = browser.browser_type.launch_persistent_context(
        tmp_path, executable_path=CHROMIUM, args=flags
    )
    page = context.pages[0]
    page.goto(one.link())
    page.click("#main .primary")
    page.wait_for_selector(".long .body")
    scroll = "([name, to]) => { document.querySelector(name).scrollTop = to; }"
    page.evaluate(scroll, [".long .body", _INSIDE])
    assert page.evaluate("document.querySelector('.long .body').scrollTop") == _INSIDE
    page.wait_for_timeout(6000)  # it writes every few seconds
    page.click(".long .more")
    free = "html, body, #page { block-size: auto !important; overflow: visible !important; }"
    page.evaluate("(css) => document.styleSheets[0].insertRule(`@media all { ${css} }`)", free)
    page.evaluate(scroll, ["html", _OUTSIDE])
    assert page.evaluate("scrollY") == _OUTSIDE
    end = time.monotonic() + 60
    while not _kept(tmp_path, _OUTSIDE) and time.monotonic() < end:
        page.wait_for_timeout(1000)
    context.close()
    assert _kept(tmp_path, _OUTSIDE)  # what it keeps is found here
    assert not _kept(tmp_path, _INSIDE)
