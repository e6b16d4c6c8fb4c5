"""Kill the collection service, and the database under it, while people send answers.

Prints one JSON object: how many processes were killed, and how many answers were acknowledged, had
to be sent again, and were refused by the cap. Anything that does not hold ends it with an error.
After every kill: what was acknowledged before it is in the database, bit by bit, and nobody is over
the cap. At the end: each person is stored with exactly the releases that were acknowledged and each
is paid once. Then two servers on one database are sent two answers of one person to one question at
the same moment, and changes of mind up to the cap.

A killed process leaves the memory of the operating system in place: this is about the order of
commits and acknowledgments, not about a disk that loses power.

    python benchmarks/faults/killed_collection.py [--kills 20] [--restarts 6] [--people 20]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _checks import need
from _postgres import Cluster, is_installed

from sordino.collection.study import Study

sys.path.append(str(Path(__file__).resolve().parents[1] / "speed"))
from _collection import POSTGRES, Answer, Person, Server, begin_study, database, invited, stored_of
from _shared import show, versions

QUESTIONS = 15
CAP = 600  # so that people are still busy when the last kill comes
OVER = 3  # answers beyond the cap
TOGETHER = 3  # most answers of one request
Step = Callable[[], object]
Ways = Callable[[Server], tuple[Step, Step]]


def releases(person: Person, cap: int) -> list[Answer]:
    """Return more answers than a person may give: to every question, then changes of mind."""
    count = len(person.asked)
    return [Answer.drawn(person.asked[at % count], 1 + at // count) for at in range(cap + OVER)]


async def give_all(person: Person, cap: int, seed: int) -> None:
    """Send all releases of a person, some at once."""
    generator = random.Random(seed)  # noqa: S311
    await person.open()
    waiting = releases(person, cap)
    while waiting:
        size = generator.randint(1, TOGETHER)
        await person.send(*waiting[:size])
        del waiting[:size]
        await asyncio.sleep(generator.random() / 50)
    await person.close()


Acknowledged = dict[str, list[Answer]]


def acknowledged_of(people: list[Person]) -> Acknowledged:
    """Return what each device was told is stored, until now."""
    return {person.device: list(person.acknowledged) for person in people}


def paid_of(found: dict[str, Answer]) -> int:
    """Return how many labels somebody gave: each change of mind is one more."""
    return sum(answer.revision for answer in found.values())


def check(stored: dict[str, Any], acknowledged: Acknowledged, cap: int) -> None:
    """Stop unless all that was acknowledged is stored, and nothing paid twice or above the cap."""
    for device, told in acknowledged.items():
        found = stored.get(device, {})
        for question, answer in {answer.question: answer for answer in told}.items():
            need(question in found, "An acknowledged answer is not there.")
            need(found[question].revision >= answer.revision, "An acknowledged change is gone.")
            if found[question].revision == answer.revision:
                need(found[question] == answer, "An acknowledged answer was changed.")
        need(paid_of(found) <= cap, "More was paid than the cap.")


def check_all(stored: dict[str, Any], people: list[Person], cap: int) -> None:
    """Stop unless each person is stored with just what was acknowledged, up to the cap."""
    check(stored, acknowledged_of(people), cap)
    for person in people:
        found = stored[person.device]
        latest = {answer.question: answer for answer in person.acknowledged}
        need(found == latest, "Something is stored that was not acknowledged.")
        need(len(person.acknowledged) == cap == paid_of(found), "The cap was not reached exactly.")
        need(person.refused == ["cap-reached"] * OVER, "The cap was not kept.")


async def interrupt(steps: list[Step], is_done: Callable[[], bool], kills: int, seed: int) -> None:
    """Kill something at random moments, look at what is stored, and let it come back."""
    generator = random.Random(seed)  # noqa: S311
    for _ in range(kills):
        await asyncio.sleep(generator.uniform(0.02, 0.25))
        need(not is_done(), "Nobody was sending anymore when something was killed.")
        for step in steps:
            await asyncio.to_thread(step)


def under_kills(
    url: str, *, people: int, kills: int, seed: int, by: Ways, way: str = "hasty"
) -> dict[str, Any]:
    """Let people answer while something is killed; return what was counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = begin_study(folder, questions=QUESTIONS, cap=CAP, changes="paid")
        study, engine, tokens = invited(file, url, people)
        server = Server(file, url, way=way).start()
        crowd = [Person(study, token, server.port) for token in tokens]

        def look() -> None:
            told = acknowledged_of(crowd)
            check(stored_of(engine, study, crowd), told, CAP)

        def is_done() -> bool:
            return all(len(one.acknowledged) == CAP for one in crowd)

        kill, revive = by(server)
        steps = [kill, look, revive]

        async def everything() -> None:
            givers = [give_all(one, CAP, seed + at) for at, one in enumerate(crowd)]
            await asyncio.gather(*givers, interrupt(steps, is_done, kills, seed))

        try:
            asyncio.run(everything())
        finally:
            server.stop()
        check_all(stored_of(engine, study, crowd), crowd, CAP)
    return {
        "kills": kills,
        "acknowledged": sum(len(one.acknowledged) for one in crowd),
        "requests_sent_again": sum(one.again for one in crowd),
        "refused_by_the_cap": sum(len(one.refused) for one in crowd),
        "lost": 0,
        "doubled": 0,
    }


def the_service(server: Server) -> tuple[Step, Step]:
    """Return how to kill the service, and how to start it again."""
    return server.kill, server.start


def the_database(cluster: Cluster, seed: int) -> Ways:
    """Return how to kill a session of PostgreSQL, or all of it, in turn; the service lives on."""
    turns = itertools.cycle([False, True])
    generator = random.Random(seed)  # noqa: S311

    def kill() -> None:
        if next(turns):
            cluster.restart_at_once()
        else:
            os.kill(generator.choice(cluster.sessions()), signal.SIGKILL)
            cluster.wait()

    return lambda server: (kill, server.wait)


async def race(study: Study, servers: list[Server], token: str, cap: int) -> tuple[Person, int]:
    """Send rivals of one person to two servers at once; return the person and requests refused."""
    device = Person(study, token, 0).device
    sides = [Person(study, token, server.port, device) for server in servers]
    await asyncio.gather(*(side.open() for side in sides))
    need(sides[0].asked == sides[1].asked, "Two servers asked one person different questions.")
    for number in range(cap + OVER):
        question = sides[0].asked[number % len(sides[0].asked)]
        revision = 1 + number // len(sides[0].asked)
        rivals = [Answer.drawn(question, revision) for _ in sides]
        await asyncio.gather(*(side.send(one) for side, one in zip(sides, rivals, strict=True)))
        kept = [one for side in sides for one in side.acknowledged if one in rivals]
        need(len(kept) == (number < cap), "Both of two rivals were stored, or none.")
    for side in sides:
        await side.close()
    both = Person(study, token, 0, device)
    both.acknowledged = sorted(
        sides[0].acknowledged + sides[1].acknowledged, key=lambda one: one.revision
    )
    return both, sum(side.again for side in sides)


def raced(url: str, *, people: int) -> dict[str, Any]:
    """Race two servers on one database for many people; return what was counted."""
    cap = QUESTIONS + 5
    with tempfile.TemporaryDirectory() as name:
        file = begin_study(Path(name), questions=QUESTIONS, cap=cap, changes="paid")
        study, engine, tokens = invited(file, url, people)
        servers = [Server(file, url).start() for _ in range(2)]

        async def everything() -> list[tuple[Person, int]]:
            return await asyncio.gather(*(race(study, servers, token, cap) for token in tokens))

        try:
            found = asyncio.run(everything())
        finally:
            for server in servers:
                server.stop()
    crowd = [person for person, _ in found]
    stored = stored_of(engine, study, crowd)
    check(stored, acknowledged_of(crowd), cap)
    need(all(paid_of(stored[one.device]) == cap for one in crowd), "A cap was not kept.")
    return {
        "races": people * (cap + OVER),
        "stored": sum(len(one.acknowledged) for one in crowd),
        "requests_sent_again": sum(again for _, again in found),
        "both_stored": 0,
    }


def one_database(kind: str, *, people: int, kills: int, seed: int) -> dict[str, Any]:
    """Return what was counted of the service on one kind of database."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database(kind, folder) as url:
            killed = under_kills(url, people=people, kills=kills, seed=seed, by=the_service)
        (folder / "study.db").unlink(missing_ok=True)
        with database(kind, folder) as url:
            races = raced(url, people=people)
    return {"service_killed": killed, "two_servers": races}


def expose_early(kills: int, people: int, seed: int) -> None:
    """End with an error, as it must, because a planted bug acknowledges before it commits."""
    with tempfile.TemporaryDirectory() as name, database("sqlite", Path(name)) as url:
        under_kills(url, people=people, kills=kills, seed=seed, by=the_service, way="early")


def measure(*, kills: int, restarts: int, people: int, seed: int) -> dict[str, Any]:
    """Return what was counted in all runs."""
    start = time.perf_counter()
    found = {"sqlite": one_database("sqlite", people=people, kills=kills, seed=seed)}
    if is_installed():
        with Cluster() as cluster:
            os.environ[POSTGRES] = cluster.address
            found["postgresql"] = one_database("postgresql", people=people, kills=kills, seed=seed)
            by = the_database(cluster, seed)
            with database("postgresql", Path()) as url:
                killed = under_kills(url, people=people, kills=restarts, seed=seed, by=by)
            found["postgresql"]["database_killed"] = killed
    return {
        "name": "killed_collection",
        "people": people,
        "cap": CAP,
        **found,
        "seed": seed,
        "seconds": round(time.perf_counter() - start),
        "versions": versions("sordino", "starlette", "uvicorn", "SQLAlchemy", "psycopg"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--early", action="store_true", help=argparse.SUPPRESS)
    asked = vars(parser.parse_args())
    if asked.pop("early"):
        expose_early(asked["kills"], asked["people"], asked["seed"])
    else:
        show(measure(**asked))
