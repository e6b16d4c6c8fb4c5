"""A small chat whose answers people can judge, though nobody ever learns what anybody pressed.

    python examples/feedback_widget.py

Then open http://chat.demo.localhost:8000. The assistant is made up: it answers from a list. The
study is mounted into the same service, and has an origin of its own all the same: the chat is at
chat.demo.localhost, the study at study.demo.localhost, and no script of the one can look into the
other. Both belong to one site (demo.localhost), so that browsers which let frames of other sites
keep nothing let this one keep its answers.

See what came in with `sordino collect status chat/study.toml`, and learn from it:

    sordino collect export chat/study.toml --out chat/answers.jsonl
    sordino align chat/answers.jsonl --out chat/run
"""  # noqa: INP001

import argparse
import secrets
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from sordino.collection import collection_app
from sordino.collection.answers import invite
from sordino.collection.database import frozen, open_database
from sordino.collection.study import read_study

STUDY = """\
id = "{id}"
title = "Are these answers good?"
questions = "feedback"  # they come with their answers
epsilon = 1.0  # about 1 in 4 thumbs is turned around before it leaves the browser
cap = 20  # the most of one device
open = true
tick_seconds = {tick}
embedded_in = ["http://chat.demo.localhost:{port}"]
database = "study.db"
"""

ANSWERS = {
    "tea": ["Steep it for three minutes in water that no longer boils.", "Tea is a drink."],
    "bread": ["Flour, water, salt, yeast, and patience: let it rise overnight.", "Buy some."],
    "moon": ["It is about 384,000 km away, a little more each year.", "It is up there."],
}
OTHERWISE = ["I only know about tea, bread and the moon.", "No idea."]

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>A small chat</title>
<style>
:root { color-scheme: light dark; background: Canvas; color: CanvasText; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
.said { border-radius: .8rem; padding: .6rem 1rem; margin: 1rem 0 .3rem; background: #8882; }
.mine { margin-left: 20%; }
form { display: flex; gap: .5rem; margin-top: 2rem; }
input { flex: 1; }
input, button { font: inherit; padding: .5rem .8rem; }
</style>
<script type="module" src="SERVICE/widget.js"></script>
</head>
<body>
<h1>A small chat</h1>
<main id="talk"></main>
<form id="ask">
<input id="text" aria-label="Your question" value="How do I make tea?" autocomplete="off">
<button>Ask</button>
</form>
<script type="module">
const talk = document.getElementById("talk");
const text = document.getElementById("text");
const say = (words, kind) => {
  const node = document.createElement("p");
  node.className = kind;
  node.textContent = words;
  talk.append(node);
};
document.getElementById("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const prompt = text.value;
  say(prompt, "said mine");
  const response = await fetch("answer", { method: "POST", body: prompt });
  const { answers } = await response.json();
  for (const answer of answers) say(answer, "said");
  const feedback = document.createElement("sordino-feedback");
  feedback.setAttribute("src", "SERVICE");
  feedback.setAttribute("invitation", "TOKEN");
  feedback.setAttribute("ask", answers.length === 2 ? "pair" : "thumb");
  feedback.prompt = prompt;
  feedback.answers = answers;
  talk.append(feedback);
});
</script>
</body>
</html>
"""


def begin(folder: Path, *, port: int, tick: int) -> str:
    """Begin the study unless it is there, and return its public token."""
    folder.mkdir(exist_ok=True)
    file, token = folder / "study.toml", folder / "open.token"
    if not token.exists():
        file.write_text(STUDY.format(id=secrets.token_hex(8), port=port, tick=tick))
        study = read_study(file)
        engine = frozen(open_database(study.database_url), study, create=True)
        token.write_text(invite(engine, study, count=1, days=365)[0])
        engine.dispose()
    return token.read_text()


def make_chat(folder: Path, *, port: int, tick: int = 5) -> Starlette:
    """Return the chat, with the study mounted into it."""
    public = begin(folder, port=port, tick=tick)
    service = f"http://study.demo.localhost:{port}/study"
    page = PAGE.replace("SERVICE", service).replace("TOKEN", public)

    async def show(_: Request) -> Response:
        return HTMLResponse(page)

    async def answer(request: Request) -> Response:
        asked = (await request.body()).decode(errors="replace").lower()
        found = next((texts for word, texts in ANSWERS.items() if word in asked), OTHERWISE)
        return JSONResponse({"answers": found if "two" in asked else found[:1]})

    study = collection_app(folder / "study.toml", admin_token=secrets.token_urlsafe(32))
    routes = [Route("/", show), Route("/answer", answer, methods=["POST"]), Mount("/study", study)]
    return Starlette(routes=routes, lifespan=lambda _: study.router.lifespan_context(study))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--folder", type=Path, default=Path("chat"))
    given = parser.parse_args()
    uvicorn.run(make_chat(given.folder, port=given.port), port=given.port, log_level="warning")
