"""Time submits of many people at once to the collection service, on loopback.

Prints one JSON object. For SQLite and PostgreSQL: seconds from a submit to its acknowledgment when
each person submits once a second (``paced``), and answers in a second when each submits again as
soon as it may (``closed``); how many answers were lost or doubled, which ends the script unless it
is none. The peer in the same run is the same service with one transaction for each submit.

    python benchmarks/speed/collection_load.py [--people 200] [--answers 100]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from _collection import POSTGRES, Answer, Person, Server, begin_study, database, invited, stored_of
from _shared import show, versions

SECONDS = 1.0  # between submits of one person, where they are paced


async def answer_all(person: Person, *, pause: float, first: float) -> None:
    """Answer every question once; with a pause, one in so many seconds from a moment on."""
    for number, question in enumerate(person.asked):
        if pause:
            await asyncio.sleep(max(0.0, first + number * pause - time.perf_counter()))
        await person.send(Answer.drawn(question))
    await person.close()


async def load(people: list[Person], *, pause: float) -> float:
    """Let all people answer side by side; return the seconds of the whole."""
    await asyncio.gather(*(person.open() for person in people))
    start = time.perf_counter()
    firsts = [start + pause * at / len(people) for at in range(len(people))]
    await asyncio.gather(
        *(
            answer_all(person, pause=pause, first=first)
            for person, first in zip(people, firsts, strict=True)
        )
    )
    return time.perf_counter() - start


def refuse_lost(people: list[Person], stored: dict[str, Any], answers: int) -> None:
    """End the script if what is stored is not exactly what each person sent."""
    for person in people:
        found = stored[person.device]
        sent = {answer.question: answer for answer in person.acknowledged}
        if person.refused or len(sent) != answers or found != sent:
            raise SystemExit("An answer was lost, doubled, changed or refused.")


def measured(
    kind: str, *, people: int, answers: int, pause: float, way: str = ""
) -> dict[str, Any]:
    """Return what one load on a new database took."""
    with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as url:
        file = begin_study(Path(name), questions=answers, cap=answers, changes="refused")
        study, engine, tokens = invited(file, url, people)
        server = Server(file, url, way=way).start()
        crowd = [Person(study, token, server.port) for token in tokens]
        before = server.core_seconds()
        mine = time.process_time()
        try:
            seconds = asyncio.run(load(crowd, pause=pause))
            mine = time.process_time() - mine
            cores = server.core_seconds() - before
        finally:
            server.stop()
        refuse_lost(crowd, stored_of(engine, study, crowd), answers)
    return summary(crowd, seconds) | {
        "server_core_seconds": round(cores, 1),
        "client_core_seconds": round(mine, 1),
    }


def summary(crowd: list[Person], seconds: float) -> dict[str, Any]:
    """Return the figures of one load."""
    waits = [1000 * wait for person in crowd for wait in person.waits]
    percents = statistics.quantiles(waits, n=1000, method="inclusive")
    return {
        "submits": len(waits),
        "per_second": round(len(waits) / seconds),
        "milliseconds": {
            "p50": round(percents[499], 1),
            "p99": round(percents[989], 1),
            "max": round(max(waits), 1),
        },
        "sent_again": sum(person.again for person in crowd),
        "lost": 0,
        "doubled": 0,
    }


def measure(*, people: int, answers: int, pace: float) -> dict[str, Any]:
    """Return the measurements of every database."""
    kinds = ["sqlite", *(["postgresql"] if POSTGRES in os.environ else [])]
    measure = partial(measured, people=people, answers=answers)
    start = os.getloadavg()[0]
    found = {}
    for kind in kinds:
        paced = measure(kind, pause=pace) if pace else None
        closed = measure(kind, pause=0.0)
        alone = measure(kind, pause=0.0, way="alone")
        found[kind] = {
            "paced": paced,
            "closed": closed,
            "closed_with_a_transaction_each": alone,
            "ratio_per_second": round(closed["per_second"] / alone["per_second"], 2),
        }
    return {
        "name": "collection_load",
        "what": "submits of one randomized answer each, over HTTP on loopback",
        "people": people,
        "answers": answers,
        "seconds_between_submits_of_one": pace,
        **found,
        "load_average_before_and_after": [round(start, 2), round(os.getloadavg()[0], 2)],
        "versions": versions("sordino", "starlette", "uvicorn", "SQLAlchemy", "psycopg"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--pace", type=float, default=SECONDS, help="0: closed loops only")
    show(measure(**vars(parser.parse_args())))
