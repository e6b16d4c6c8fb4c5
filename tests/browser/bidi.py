"""Firefox without a window, driven by WebDriver BiDi: its own protocol, JSON over a websocket."""

import json
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

FIREFOX = next((path for path in map(shutil.which, ("firefox", "firefox-esr")) if path), None)
_PATIENCE = 120  # seconds, on a busy machine


@contextmanager
def started(folder):
    """Start Firefox with its files in a folder; at the end it is gone."""
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    if FIREFOX is None:
        pytest.skip("no Firefox on this machine")
    command = [FIREFOX, "--headless", "--no-remote", "--profile", folder]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--remote-debugging-port=0"], **quiet)
    try:
        told, end = folder / "WebDriverBiDiServer.json", time.monotonic() + _PATIENCE
        while not (told.is_file() and told.read_text().endswith("}")):
            assert time.monotonic() < end, "Firefox did not start"
            time.sleep(0.1)
        port = json.loads(told.read_text())["ws_port"]
        with client.connect(f"ws://127.0.0.1:{port}/session", max_size=None) as wire:
            yield Firefox(wire)
    finally:
        process.terminate()
        process.wait(_PATIENCE)


class Firefox:
    """One browser; each person in it has a profile of its own."""

    def __init__(self, wire):
        """Shake hands; from now on the browser tells what every page asks for and says."""
        self.wire, self.count, self.replies, self.person = wire, 0, {}, None
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["network.beforeRequestSent", "log.entryAdded"])
        size = 10**6
        self.call("network.addDataCollector", dataTypes=["request"], maxEncodedDataSize=size)

    def call(self, method, **params):
        """Ask the browser for something; what happens meanwhile is noted by the person."""
        self.count += 1
        number, end = self.count, time.monotonic() + _PATIENCE
        self.wire.send(json.dumps({"id": number, "method": method, "params": params}))
        while number not in self.replies:
            message = json.loads(self.wire.recv(timeout=end - time.monotonic()))
            if "id" in message:
                self.replies[message["id"]] = message
            elif self.person is not None:
                self.person.note(message["method"], message["params"])
        reply = self.replies.pop(number)
        assert reply["type"] == "success", (method, reply.get("message"))
        return reply["result"]


class Person:
    """Somebody in Firefox: what is pressed, and all that leaves the page."""

    def __init__(self, firefox, *preload, played=None):
        """Open a profile; `played` answers in the place of the service, each path by a function."""
        self.call, self.played, firefox.person = firefox.call, played or {}, self
        self.asked, self.sent, self.noted = [], [], []
        self.profile = self.call("browser.createUserContext")["userContext"]
        made = self.call("browsingContext.create", type="tab", userContext=self.profile)
        self.tab = made["context"]
        only = [self.tab]
        for source in preload:
            function = f"() => {{ {source} }}"
            self.call("script.addPreloadScript", functionDeclaration=function, contexts=only)
        if self.played:
            places = [{"type": "pattern", "pathname": path} for path in self.played]
            phases = ["beforeRequestSent"]
            self.call("network.addIntercept", phases=phases, urlPatterns=places, contexts=only)

    def note(self, event, params):
        """Keep what the page says and sends; answer what is played."""
        if event == "log.entryAdded":
            self.noted.append(params["text"])
            return
        request = params["request"]
        if request["url"].startswith("data:"):
            return  # Firefox's own font: it is asked of nobody
        path = request["url"].split("://")[-1].partition("/")[2]
        self.asked.append(request["url"])
        body = None
        if request["method"] == "POST":
            which = {"dataType": "request", "request": request["request"]}
            body = self.call("network.getData", **which)["bytes"]["value"]
            heads = {one["name"].lower(): one["value"]["value"] for one in request["headers"]}
            kept = [heads.get(name) for name in ("authorization", "content-type", "cookie")]
            self.sent.append((request["url"], kept, body))
        if params["isBlocked"]:
            kind, text = self.played[f"/{path}"](body)
            self.call(
                "network.provideResponse",
                request=request["request"],
                statusCode=200,
                headers=[{"name": "Content-Type", "value": {"type": "string", "value": kind}}],
                body={"type": "string", "value": text},
            )

    def go(self, address):
        """Open an address and wait until it is loaded."""
        self.call("browsingContext.navigate", context=self.tab, url=address, wait="complete")

    def run(self, function, given=None):
        """Return what a function of the page gives for this argument."""
        whole = f"async (one) => JSON.stringify(await ({function})(JSON.parse(one))) ?? 'null'"
        told = self.call(
            "script.callFunction",
            functionDeclaration=whole,
            arguments=[{"type": "string", "value": json.dumps(given)}],
            awaitPromise=True,
            target={"context": self.tab},
        )
        assert told["type"] == "success", told.get("exceptionDetails", {}).get("text")
        return json.loads(told["result"]["value"])

    def wait(self, function, given=None):
        """Wait until a function of the page gives something, and return it."""
        end = time.monotonic() + _PATIENCE
        while not (found := self.run(function, given)):
            assert time.monotonic() < end, function
            time.sleep(0.05)
        return found

    def text(self, selector):
        """Wait for a part of the page and return its words."""
        return self.wait("(where) => document.querySelector(where)?.innerText", selector)

    def press(self, key):
        """Press a key, as a hand does."""
        both = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keys", "actions": both}]
        self.call("input.performActions", context=self.tab, actions=actions)

    def close(self):
        """Forget the profile and all that it holds."""
        self.call("browser.removeUserContext", userContext=self.profile)
