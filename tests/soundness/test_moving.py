"""However a study goes from one device to another: one coin for each question is ever stored.

Devices are played here as the page behaves: one that is locked tosses nothing, and one that takes
over counts what it is told as answered. Every order of steps is tried, and every step may be the
last that a device hears of.
"""

import itertools
import json

import pytest
from sqlalchemy import select

from sordino.collection.answers import (
    _Submitted,
    claim,
    handle_of,
    invite,
    open_invitation,
    prepare_move,
    reissue,
    store,
)
from sordino.collection.arena import chooser_of
from sordino.collection.database import ANSWERS, PERSONS, frozen, open_database
from sordino.collection.refusals import Refusal

from .test_collection import devices_digest, make_study

CHOOSE = (open_invitation, store)  # questions


class Device:
    """A page with its memory."""

    def __init__(self, world, letter):
        self.world, self.letter, self.secret = world, letter, f"{world.number:06}{letter * 37}"
        self.locked, self.tossed, self.known = True, [], []

    def call(self, job, **more):
        """Return what the service says in one transaction; False where it refuses."""
        try:
            with self.world.engine.begin() as connection:
                chooses = {"chooser": chooser_of(self.world.study)} if job in CHOOSE else {}
                return job(connection, self.world.study, device=self.secret, **chooses, **more)
        except Refusal:
            return False

    def take(self, opened):
        """Begin with what the service tells, or not at all."""
        if opened:
            self.known = [row["question"] for row in opened.stored]
            self.questions, self.locked = opened.questions, False

    def answer(self):
        """Toss a coin for the next question, and send it."""
        rest = [] if self.locked else [q for q in self.questions if q not in self.known]
        if rest:
            self.known.append(rest[0])
            self.tossed.append(rest[0])
            name = f"{len(self.tossed):08d}-0000-4000-8000-{ord(self.letter):012d}"
            one = _Submitted(name, rest[0], 1, ord(self.letter) % 2)
            self.call(store, answers=(one,))

    def ask(self, step):
        return self.call(prepare_move, step=step, code=self.world.code)


@pytest.fixture
def begun(tmp_path):
    """Return a study and its database, and a maker of people in it."""
    study = make_study(tmp_path, questions=3, cap=3)
    engine = frozen(open_database(study.database_url), study, create=True)
    numbers = itertools.count()
    yield lambda: World(engine, study, next(numbers))
    engine.dispose()


class World:
    """A person in a study, with an old device that has opened the invitation and a new one."""

    def __init__(self, engine, study, number):
        self.engine, self.study, self.number = engine, study, number
        self.code = f"{number:012}"  # one that another person left open is no part of this order
        (self.token,) = invite(self.engine, self.study, count=1, days=1)
        self.old, self.new = Device(self, "a"), Device(self, "b")
        self.old.take(self.old.call(open_invitation, token=self.token))
        device = devices_digest(study, self.old.secret)
        with engine.connect() as connection:
            wanted = select(PERSONS.c.id).where(PERSONS.c.device == device)
            self.person = connection.execute(wanted).scalar_one()

    def step(self, name):
        old, new = self.old, self.new
        if name == "old answers":
            old.answer()
        elif name == "new answers":
            new.answer()
        elif name == "code":
            old.locked = True  # first, and on the disk
            old.ask("code")
        elif name == "stay":
            old.locked = old.ask("stay") is False  # it goes on when the service has said so
        elif name == "stay unheard":
            old.ask("stay")
        elif name == "claim":
            new.take(new.call(claim, code=self.code, fresh=True))
        elif name == "claim unheard":
            new.call(claim, code=self.code, fresh=True)
        elif name == "old link":
            new.take(new.call(open_invitation, token=self.token))

    def row(self):
        with self.engine.connect() as connection:
            return connection.execute(select(PERSONS).where(PERSONS.c.id == self.person)).one()

    def bound(self):
        devices = (self.old, self.new, Device(self, "c"))
        names = {devices_digest(self.study, each.secret): each.letter for each in devices}
        return names.get(self.row().device)

    def rows(self):
        with self.engine.connect() as connection:
            mine = ANSWERS.c.person == self.person
            return connection.execute(select(ANSWERS).where(mine)).all()


STEPS = ("old answers", "new answers", "code", "stay", "stay unheard", "claim", "claim unheard",
         "old link")  # fmt: skip


@pytest.mark.deep
def test_no_order_of_steps_lets_two_devices_toss_for_one_question(begun):
    """All 4,096 orders of four steps between a first answer and the last ones, crashes included."""
    for order in itertools.product(STEPS, repeat=4):
        check(begun, order)


@pytest.mark.parametrize(
    "order",
    [
        ("code", "claim", "new answers", "old answers"),
        ("code", "claim unheard", "old link", "new answers"),
        ("code", "claim unheard", "claim", "new answers"),
        ("code", "stay", "old answers", "claim"),
        ("code", "stay unheard", "claim", "new answers"),
        ("code", "claim", "stay", "old answers"),
        ("code", "claim", "new answers", "claim"),
        ("claim", "new answers", "old answers", "old link"),
    ],
    ids=", ".join,
)
def test_one_coin_falls_for_each_question(begun, order):
    check(begun, order)


def check(begun, order):
    world = begun()
    for name in ("old answers", *order, *["old answers", "new answers"] * 3):
        world.step(name)
    tossed = world.old.tossed + world.new.tossed
    assert len(tossed) == len(set(tossed)), order
    assert sorted(row.question for row in world.rows()) == sorted(tossed), order  # none is lost


def test_a_code_is_used_once(begun):
    world = begun()
    world.step("code")
    world.step("claim")
    third = Device(world, "c")
    assert third.call(claim, code=world.code, fresh=True) is False
    assert world.bound() == "b"


def test_a_code_that_is_old_or_taken_back_binds_nobody(begun):
    world = begun()
    world.step("code")
    assert world.new.call(claim, code=world.code, fresh=False) is False
    world.old.ask("stay")
    assert world.new.call(claim, code=world.code, fresh=True) is False
    assert world.bound() == "a"


def test_the_database_never_holds_a_code(begun):
    world = begun()
    world.step("code")
    row = world.row()
    assert world.code not in map(str, row)
    assert len(row.moving) == 64


def test_after_a_new_link_at_most_one_coin_is_stored_whenever_the_lost_device_sends(begun):
    """The lost device sends before, in the middle or after, what it had tossed and never sent."""
    for at, again in itertools.product(range(4), (False, True)):
        world = begun()
        world.old.answer()
        lost = _Submitted("f" * 8 + "-0000-4000-8000-" + "0" * 12, world.old.questions[1], 1, 0)
        for place in range(4):
            if place == at:
                world.old.call(store, answers=(lost,))
            if place == 0:
                handle = handle_of(world.study, world.token)
                token = reissue(world.engine, world.study, handle, days=1)
            elif place == 1:
                world.new.take(world.new.call(open_invitation, token=token))
            elif place == 2:
                for _ in range(3):  # a device that stays locked tosses none, and the test ends
                    world.new.answer()
        rows = world.rows()
        assert len(rows) == len({row.question for row in rows}) == 3
        stored = {row.question: row.id for row in rows}
        assert (stored[lost.question] == lost.id) == (at == 0)
        assert (lost.question in world.new.tossed) == (at != 0)
        assert world.bound() == "b"
        if again:  # the old link is dead, and so is the device that had it
            assert world.old.call(open_invitation, token=world.token) is False
            assert world.old.call(store, answers=(lost,)) is False
            assert Device(world, "c").call(open_invitation, token=token) is False


def test_whoever_is_done_is_told_the_same_whatever_they_answered(begun):
    """The same requests with other bits get the same replies."""
    found = set()
    for bits in itertools.product((0, 1), repeat=3):
        world = begun()
        object.__setattr__(world.study, "completion_code", "C1")
        told = []
        for place, bit in enumerate(bits):
            one = _Submitted(f"{place:08d}-0000-4000-8000-" + "0" * 12, "", 1, bit)
            one = one._replace(question=world.old.questions[place])
            told += [world.old.call(store, answers=(one,))["completion"] for _ in range(2)]
        found.add(json.dumps(told))
    assert found == {json.dumps([None] * 4 + [{"code": "C1", "url": None}] * 2)}
