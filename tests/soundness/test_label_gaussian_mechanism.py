"""Noise on labels, exactly: what a label or a person moves in integers, and what hides it."""

import itertools
import math
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.tiers import few

from sordino._random import SimulatedEntropy
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.engines.engine import Rows
from sordino.errors import DataError, UsageError
from sordino.mechanisms import gaussian, label_sum
from sordino.mechanisms.label_sum import ChunkedLabels, LabelDesign, LabelGaussian
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent

VALUES = (0, 1, 2)
SLACK = Fraction(2**20 + 1, 2**20)  # what the grid costs: see test_gaussian_mechanism


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# --- the check that mutants must fail -------------------------------------------------------------


def total(design, labels):
    """What the design adds up for some labels, as exact integers."""
    return [int(step) for step in design._total(np.asarray(labels, dtype=np.int8))]


def broken_by(design, moved):
    """A design that believes its rows to move the sum by so much: it can only be forced to."""
    changed = replace(design)
    object.__setattr__(changed, "moved", float(moved))
    return changed


def moved_squared(design, one, other):
    both = zip(total(design, one), total(design, other), strict=True)
    return sum((a - b) ** 2 for a, b in both)


def hidden_squared(design):
    """The squared move, in steps, that the drawn noise hides for the stated mu: exact."""
    return (Fraction(design.mechanism.mu) * Fraction(design.scale) / SLACK) ** 2 * (1 + ROUNDING)


ROUNDING = Fraction(1, 2**48)  # of floats in mu and scale; the allowance has room for 2^-22


def label_changes(n, rows, backgrounds):
    """Labels and the same labels with one of them replaced, in every way."""
    for row, (old, new) in itertools.product(rows, itertools.permutations(VALUES, 2)):
        for background in backgrounds:
            one = np.full(n, background) if isinstance(background, int) else background.copy()
            other = one.copy()
            one[row], other[row] = old, new
            yield one, other


def person_changes(design, ids, seed=0):
    """Labels and the same labels with all labels of one person replaced."""
    generator, ids = np.random.default_rng(seed), np.asarray(ids)
    for person in set(ids.tolist()):
        mine = ids == person
        halves = design.halves[mine].astype(float)
        ways = [*generator.normal(size=(6, halves.shape[1])), *halves[:5]]
        for way in ways:
            one = generator.integers(0, 3, len(ids))
            other = one.copy()
            one[mine] = halves @ way > 0  # pulled to one side as far as possible
            other[mine] = halves @ way <= 0
            yield one, other


def moves_too_much(design, *, ids=None, seed=0):
    """The names of the changes that show more than is hidden: integers and fractions only."""
    n = len(design.halves)
    rows = range(n) if n <= 12 else [*np.argsort(-norms(design))[:6], 0, n - 1]
    backgrounds = [0, 1, 2, *np.random.default_rng(seed).integers(0, 3, size=(3, n))]
    changes = {"label": label_changes(n, rows, backgrounds)}
    if ids is not None:
        changes["person"] = person_changes(design, ids, seed)
    limit, failed = hidden_squared(design), set()
    for name, pairs in changes.items():
        if any(moved_squared(design, one, other) > limit for one, other in pairs):
            failed.add(name)
    if not gaussian.STEPS_OF_NOISE[0] <= design.scale <= gaussian.STEPS_OF_NOISE[1]:
        failed.add("grid")
    return failed


def refuted_by(design, differences, *, ids=None):
    """The names of the checks that a design fails; an honest one fails none."""
    return moves_too_much(design, ids=ids) | unfaithful(design, differences)


def norms(design):
    return np.linalg.norm(design.halves.astype(float), axis=1)


def unfaithful(design, differences):
    """What is wrong with the sum itself, and with the noise that is really drawn.

    The variance of 4,000 draws in each direction is within 15 % except with probability 1e-10
    (6.7 standard deviations of 2.2 %); half the noise is 25 %.
    """
    failed, n = set(), len(differences)
    generator = np.random.default_rng(0)
    counts = np.where(design.used, 1.0, 0.0)
    ties, ones = (total(design, np.full(n, value)) for value in (2, 1))
    if [2 * step for step in ties] != ones or any(total(design, np.zeros(n))):
        failed.add("tie")
    labels = generator.integers(0, 3, n)
    truth = differences.T @ (np.array([0.0, 1.0, 0.5])[labels] * counts)
    outputs = design.repeat(labels, 4000, entropy=SimulatedEntropy(3))
    noise = (outputs - truth) @ design.ellipsoid.whiten.T
    noise /= design.scale * design.mechanism.grid
    if abs(noise.mean(axis=0)).max() > 6.5 / math.sqrt(4000) + 1e-3:
        failed.add("sum")
    if abs(noise.var(axis=0) - 1).max() > 0.15:
        failed.add("noise")
    return failed


# --- what one change moves ------------------------------------------------------------------------


@st.composite
def worlds(draw):
    d, n = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = generator.normal(size=(n, d)) * 10.0 ** draw(st.integers(-90, 90))
    rows *= 10.0 ** -(np.arange(d) * draw(st.sampled_from([0.0, 0.5, 1.5])))
    rows[generator.random(n) < draw(st.sampled_from([0.0, 0.4]))] = 0.0
    rows[draw(st.integers(0, n - 1))] = 10.0 ** draw(st.integers(-3, 3))
    return rows


GRIDS = st.floats(2.0**-24, 2.0**-12)


@given(worlds(), GRIDS, st.booleans(), st.integers(0, 99), st.booleans(), st.booleans())
@settings(max_examples=120)
def test_no_label_moves_the_sum_by_more_than_is_hidden(rows, grid, shaped, seed, is_sparse, less):
    """Claim: PPHJ, Algorithm 1 (Lemma A.10): (ε/2, δ/2) with σ² = 40L² log(1/δ)/ε²"""
    longest = float(np.linalg.norm(rows, axis=1).max()) / 3 if less else math.inf
    mechanism = LabelGaussian(1.0, delta=1e-6, shaped=shaped, grid=grid, longest=longest)
    design = mechanism.prepare(sparse.csr_array(rows) if is_sparse else rows)
    assert moves_too_much(design, seed=seed) == set()


@given(worlds(), GRIDS, st.booleans(), st.integers(1, 4), st.data())
@settings(max_examples=120)
def test_no_person_moves_the_sum_by_more_than_is_hidden(rows, grid, shaped, most, data):
    ids = data.draw(st.lists(st.sampled_from(["a", "b", "c", 7]), min_size=len(rows)))[: len(rows)]
    order = data.draw(st.one_of(st.none(), st.permutations(range(len(rows)))))
    rows = rows.copy()
    rows[:] = np.where(np.abs(rows) > 0, rows, rows.max())  # so that no choice is all zeros
    mechanism = LabelGaussian(1.0, delta=1e-6, shaped=shaped, grid=grid, records_per_person=most)
    design = mechanism.prepare(rows, persons=ids, rows=order)
    assert moves_too_much(design, ids=ids) == set()
    preferred = order or range(len(rows))
    for person in set(ids):
        mine = [i for i in preferred if ids[i] == person]
        assert design.used[mine[:most]].all()
        assert not design.used[mine[most:]].any()


@pytest.mark.parametrize("shaped", [True, False])
def test_a_label_attains_what_is_stated_and_so_do_parallel_rows_of_a_person(shaped):
    rows = normal(300, 5)
    design = LabelGaussian(1.0, delta=1e-6, shaped=shaped).prepare(rows)
    case = design.worst_case(REPLACE_ONE)
    assert np.count_nonzero(case.one != case.other) == 1
    moved = math.sqrt(moved_squared(design, case.one, case.other))
    assert moved <= design.moved <= moved * (1 + 2.0**-25)
    ids = np.repeat(np.arange(100), 3)
    same = np.repeat(normal(100, 5), 3, axis=0) * np.tile([1.0, -0.5, 0.25], 100)[:, None]
    design = LabelGaussian(1.0, delta=1e-6, shaped=shaped, records_per_person=3).prepare(
        same, persons=ids
    )
    case = design.worst_case(REPLACE_ONE)
    moved = math.sqrt(moved_squared(design, case.one, case.other))
    assert moved <= design.moved <= moved * (1 + 2.0**-18)
    assert len(set(ids[case.one != case.other])) == 1


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.3])
def test_mu_is_the_largest_that_keeps_the_promise(epsilon, delta):
    mechanism = LabelGaussian(epsilon, delta=delta, grid=2.0**-22)
    stated = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    assert stated.epsilon <= epsilon
    assert gaussian_delta(epsilon, mechanism.mu) <= delta
    more = [(GaussianEvent(mechanism.mu * (1 + 1e-8)), 1)]
    assert composed_epsilon(more, neighbors=REPLACE_ONE, delta=delta) > epsilon
    design = mechanism.prepare(normal(20, 3))
    assert Fraction(design.moved) * SLACK <= (
        Fraction(mechanism.mu) * Fraction(design.scale) * (1 + ROUNDING)
    )


# --- mutants: each is refuted by the check above --------------------------------------------------


def as_class(cls, design):
    """The same design with other methods."""
    known = {f.name: getattr(design, f.name) for f in fields(LabelDesign) if f.init}
    return cls(**known)


class HalfDrawn(LabelDesign):
    """It states all of its noise and draws half."""

    def repeat(self, values, trials, *, entropy):
        full, center = super().repeat(values, trials, entropy=entropy), self._total(values)
        return (full + center @ self.step.T) / 2


class SumRounded(LabelDesign):
    """The sum of floats is rounded, and not each row: neighbors round differently."""

    fine = None

    def _total(self, labels):
        times = np.array([0.0, 2.0, 1.0])[np.asarray(labels, dtype=int)]
        return np.rint(times @ (self.halves + self.fine)).astype(np.int64)


class TieAsTwo(LabelDesign):
    """The code of an undecided label, 2, is read as a number."""

    def _total(self, labels):
        return 2 * np.asarray(labels, dtype=np.int64) @ self.halves.astype(np.int64)


class TieAsOne(LabelDesign):
    """An undecided label counts as a whole one: hidden well, and wrong."""

    def _total(self, labels):
        return super()._total(np.minimum(labels, 1))


class TieAsNone(LabelDesign):
    """An undecided label is left out."""

    def _total(self, labels):
        return super()._total(np.where(np.asarray(labels) == 2, 0, labels))


def design_of(rows, *, cap=None, ids=None, **settings_):
    mechanism = LabelGaussian(1.0, delta=1e-6, records_per_person=cap, **settings_)
    return mechanism.prepare(rows, persons=ids)


ROWS = normal(40, 4) * [1.0, 0.3, 0.1, 0.01]
ONE_WAY = np.abs(ROWS)  # a person's rows look one way, so that their lengths do add up
IDS = ["a"] * 12 + ["b"] * 3 + [f"p{i}" for i in range(25)]


def half_stated(design):
    return broken_by(design, design.moved / 2)


def in_largest_coordinate(design):
    return broken_by(design, 2.0 * np.abs(design.halves).max())


def average_row(design):
    return broken_by(design, 2.0 * float(norms(design).mean()))


def ball_for_the_ellipsoid(design):
    """The length that a ball would have measured, with noise in the shape of the ellipsoid.

    Here the rows are seen whitened by their second moment, whose longest is well above 1.
    """
    root = np.linalg.cholesky(np.linalg.inv(ROWS.T @ ROWS / len(ROWS))).T
    halves = np.rint(ROWS @ root.T / (2 * design.mechanism.grid)).astype(np.int32)
    shape = replace(design.ellipsoid, whiten=root, unwhiten=np.linalg.inv(root))
    changed = replace(design, ellipsoid=shape, halves=halves)
    return broken_by(changed, 1 / design.mechanism.grid)


def sum_rounded(design):
    made = as_class(SumRounded, design)
    exact = ROWS @ design.ellipsoid.whiten.T / (2 * design.mechanism.grid)
    object.__setattr__(made, "fine", exact - design.halves)
    return made


def one_row_of_a_person(design):
    return broken_by(design, 2.0 * float(norms(design).max()))


def cap_ignored(design):
    """All rows of a person count, and the noise is that of those under the cap."""
    whiten = design.ellipsoid.whiten / (2 * design.mechanism.grid)
    every = np.rint(ONE_WAY @ whiten.T).astype(np.int32)
    changed = replace(design, halves=every, used=np.ones(len(IDS), dtype=bool))
    return broken_by(changed, design.moved)


def root_of_squares(design):
    """Lengths of a person's rows added as if they were independent."""
    squares = [np.sum(norms(design)[np.array(IDS) == person] ** 2) for person in set(IDS)]
    return broken_by(design, 2.0 * math.sqrt(max(squares)))


def test_rows_that_count_less_are_refuted_where_they_count_whole():
    # The noise hides rows that are cut to a third of the longest; the sum adds them up whole.
    longest = float(np.linalg.norm(ROWS, axis=1).max()) / 3
    design = design_of(ROWS, shaped=False, longest=longest)
    cut = ROWS * np.minimum(1, longest / np.linalg.norm(ROWS, axis=1))[:, None]
    assert refuted_by(design, cut) == set()
    assert design.step @ total(design, np.ones(40)) == pytest.approx(cut.sum(axis=0), abs=1e-4)
    whole = np.rint(ROWS @ design.ellipsoid.whiten.T / (2 * design.mechanism.grid))
    mutant = broken_by(replace(design, halves=whole.astype(np.int32)), design.moved)
    assert "label" in refuted_by(mutant, ROWS)


@pytest.mark.parametrize("shaped", few([True, False], first=1))
@pytest.mark.parametrize("cap", few([None, 1, 5], first=2))
def test_an_honest_design_survives_every_check(shaped, cap):
    ids = IDS if cap else None
    for grid in (2.0**-12, 2.0**-20, 2.0**-24, 1e-5):
        design = design_of(ROWS, cap=cap, ids=ids, shaped=shaped, grid=grid)
        assert refuted_by(design, ROWS, ids=ids) == set()


@pytest.mark.parametrize(
    ("mutate", "check"),
    [
        (half_stated, "label"),
        (in_largest_coordinate, "label"),
        (average_row, "label"),
        (ball_for_the_ellipsoid, "label"),
        (lambda design: as_class(HalfDrawn, design), "noise"),
        (lambda design: as_class(TieAsTwo, design), "label"),
        (lambda design: as_class(TieAsTwo, design), "tie"),
        (lambda design: as_class(TieAsOne, design), "tie"),
        (lambda design: as_class(TieAsNone, design), "tie"),
        (lambda design: as_class(TieAsNone, design), "sum"),
    ],
)
def test_a_mutant_is_refuted(mutate, check):
    assert check in refuted_by(mutate(design_of(ROWS)), ROWS)


def test_a_sum_that_is_rounded_instead_of_its_rows_is_refuted():
    """On a grid it shows by luck, about every second time: on 20 grids it is refuted on some."""
    designs = [design_of(ROWS, grid=2.0**-20 * (1 + k / 20)) for k in range(20)]
    assert all(moves_too_much(design) == set() for design in designs)
    assert any("label" in moves_too_much(sum_rounded(design)) for design in designs)


@pytest.mark.parametrize(
    ("mutate", "check"),
    [(one_row_of_a_person, "person"), (cap_ignored, "person"), (root_of_squares, "person")],
)
def test_a_mutant_for_persons_is_refuted(mutate, check):
    honest = design_of(ONE_WAY, cap=5, ids=IDS)
    assert refuted_by(honest, ONE_WAY, ids=IDS) == set()
    assert check in refuted_by(mutate(honest), ONE_WAY, ids=IDS)


# --- the auditor plays it -------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "cap"), [("label", None), ("person", 2)])
def test_the_auditor_comes_near_the_promise_and_does_not_pass_it(unit, cap):
    """Refuted with probability 1e-3 at most if honest; the audit is seeded.

    At ε = 2, δ = 0.01 half the noise is refuted by 10,000 releases with power above 0.99.
    """
    rows = np.repeat(normal(8, 3), 2, axis=0)
    ids = np.repeat(np.arange(8), 2) if cap else None
    design = LabelGaussian(2.0, delta=0.01, records_per_person=cap).prepare(rows, persons=ids)
    known = {"unit": unit, "neighbors": REPLACE_ONE, "trust": "central"}
    audit = audit_mechanism(design, **known, trials=10_000, simulate_seed=1)
    assert audit.verdict == "not refuted"
    broken = broken_by(design, design.moved / 2)
    assert audit_mechanism(broken, **known, trials=10_000, simulate_seed=1).verdict == "refuted"


# --- rows that do not count -----------------------------------------------------------------------


def size_of(power):
    """A number of any size that a float can have, 0 among them."""
    return 0.0 if power is None else 1.7 * 10.0**power


SIZES = st.none() | st.integers(-308, 307)


@settings(max_examples=60, deadline=None)
@given(
    left_out=st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=3),
    unit=st.integers(-100, 100),
    capped=st.booleans(),
    shaped=st.booleans(),
    form=st.sampled_from([np.asarray, sparse.csr_array]),
)
@example(left_out=[(250, 250)], unit=-100, capped=True, shaped=True, form=np.asarray)
def test_a_label_that_does_not_count_changes_no_byte_whatever_its_features_are(
    left_out, unit, capped, shaped, form
):
    """Vectors that count lie on a circle of any size; the others have any that a float has.

    Where a product with the others is no number, no mask takes it out again.
    """
    k = len(left_out)
    counted = [[np.cos(turn), np.sin(turn)] for turn in (0.0, 1.0, 2.0)]
    rows = np.array([[size_of(x), -size_of(y)] for x, y in left_out])
    rows = form(np.vstack([np.array(counted) * 10.0**unit, rows]))
    noise = LabelGaussian(1.0, delta=1e-6, shaped=shaped, records_per_person=1 if capped else None)
    ids = ["a", "b", "c"] + ["a"] * k
    design = noise.prepare(rows, persons=ids if capped else None, rows=None if capped else range(3))
    assert design.used.tolist() == [True] * 3 + [False] * k
    assert not design.halves[3:].any()
    released = {
        design.release(np.array([0, 2, 1, *[label] * k]), entropy=SimulatedEntropy(7)).tobytes()
        for label in VALUES
    }
    assert len(released) == 1


def read_by_a_mask(rows, used, whiten, **_):
    with np.errstate(all="ignore"):
        return (np.rint(rows @ whiten.T / 2) * used[:, np.newaxis]).astype(np.int32)


def test_the_auditor_refutes_a_sum_in_which_rows_that_do_not_count_are_multiplied_by_0(monkeypatch):
    """The auditor turns their labels too: it is refuted by the first releases."""
    rows = np.array([[1e-100, 0.0], [1e250, 1e250], [0.0, 1e-100]])
    known = {"unit": "label", "neighbors": REPLACE_ONE, "trust": "central"}
    noise = LabelGaussian(2.0, delta=0.01)
    honest = noise.prepare(rows, rows=[0, 2])
    assert audit_mechanism(honest, **known, trials=2_000, simulate_seed=1).verdict == "not refuted"
    monkeypatch.setattr(label_sum, "_half_steps", read_by_a_mask)
    masked = noise.prepare(rows, rows=[0, 2])
    assert audit_mechanism(masked, **known, trials=2_000, simulate_seed=1).verdict == "refuted"


# --- ties that are counted beside the sum ---------------------------------------------------------


def with_marks(rows, ties, seed=0):
    """Rows with counters behind: of all votes, and of one of the groups."""
    groups = np.random.default_rng(seed).integers(0, max(ties - 1, 1), len(rows))
    marks = np.column_stack([np.ones(len(rows)), groups[:, None] == np.arange(ties - 1)])
    return np.hstack([rows, marks])


@given(worlds(), GRIDS, st.booleans(), st.integers(0, 99), st.integers(1, 3), st.booleans())
@settings(max_examples=80)
def test_no_label_moves_the_sum_and_the_number_of_ties_by_more_than_is_hidden(
    rows, grid, shaped, seed, ties, is_person
):
    ids = [f"p{i // 3}" for i in range(len(rows))] if is_person else None
    mechanism = LabelGaussian(
        1.0, delta=1e-6, shaped=shaped, grid=grid, ties=ties,
        records_per_person=2 if is_person else None,
    )  # fmt: skip
    given_rows = with_marks(np.where(rows == 0, rows.max(), rows), ties, seed)
    design = mechanism.prepare(given_rows, persons=ids)
    assert moves_too_much(design, seed=seed) == set()


MET = {"disjoint": [(0, 1), (2, 3), (4, 5)], "star": [(0, 1), (0, 2), (3, 0)],
       "ring": [(0, 1), (1, 2), (2, 0)], "same": [(0, 1), (1, 0), (0, 1)]}  # fmt: skip


@pytest.mark.parametrize("shaped", [True, False])
@pytest.mark.parametrize("ties", [0, 1, 2])
@pytest.mark.parametrize("met", MET.values(), ids=MET)
def test_whatever_a_person_says_of_three_pairs_is_hidden_and_not_much_more(met, ties, shaped):
    """Every two triples of labels: no triple is farther from another than the noise hides."""
    # A person of three disjoint pairs decides, so that there the bound is √3 and not 3 rows.
    rows = np.zeros((12, 6))
    for at, (one, other) in enumerate([*met, *MET["disjoint"] * 3]):
        rows[at, [one, other]] = 1, -1
    ids = np.array([0] * 3 + [1 + at % 9 for at in range(9)])
    mechanism = LabelGaussian(1.0, delta=1e-6, shaped=shaped, ties=ties, records_per_person=3)
    design = mechanism.prepare(with_marks(rows, ties) if ties else rows, persons=ids)
    sums = {}
    for said in itertools.product((0, 1, 2), repeat=3):
        sums[said] = total(design, np.array([*said, *[0] * 9]))
    limit = hidden_squared(design)
    farthest = max(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
        for one, other in itertools.combinations(sums.values(), 2)
    )
    assert farthest <= limit
    assert limit <= farthest * (1.51 if met == MET["ring"] else 1 + 1e-4)  # signs of a ring differ


def test_the_number_of_a_persons_ties_is_hidden_where_it_moves_the_sum_most():
    """Short rows of one person: three ties against three wins move the counter and little else."""
    rows, ids = np.vstack([0.3 * np.eye(3), np.eye(3)]), np.array([0, 0, 0, 1, 2, 3])
    mechanism = LabelGaussian(1.0, delta=1e-6, shaped=False, ties=1, records_per_person=3)
    design = mechanism.prepare(with_marks(rows, 1), persons=ids)
    moved = moved_squared(design, np.array([2, 2, 2, 0, 0, 0]), np.array([1, 1, 1, 0, 0, 0]))
    assert moved <= hidden_squared(design) <= moved * 1.05


@pytest.mark.parametrize("ties", [1, 3])
def test_ties_are_counted_exactly_and_cost_no_noise(ties):
    rows = normal(60, 4)
    plain = LabelGaussian(1.0, delta=1e-6).prepare(rows)
    design = LabelGaussian(1.0, delta=1e-6, ties=ties).prepare(with_marks(rows, ties))
    assert design.moved == pytest.approx(plain.moved, rel=1e-5)
    labels = np.random.default_rng(1).integers(0, 3, 60)
    exact = with_marks(rows, ties)[:, 4:].T @ (labels == 2)
    outputs = design.repeat(labels, 4000, entropy=SimulatedEntropy(3))
    noise = outputs[:, 4:] - exact
    deviation = math.sqrt(design.covariance[4, 4])
    assert abs(noise.mean(axis=0)).max() < 6.5 * deviation / math.sqrt(4000) + 1e-3
    assert noise.var(axis=0) == pytest.approx(np.diag(design.covariance)[4:], rel=0.15)
    assert deviation == pytest.approx(
        2 / math.sqrt(3 / min(ties, 2)) / design.mechanism.mu, rel=1e-4
    )
    np.testing.assert_array_equal(  # the rest is what it was
        total(design, labels)[: plain.halves.shape[1]], total(plain, labels)
    )


@pytest.mark.parametrize("cap", [None, 3])
def test_an_auditor_finds_ties_neither_too_loud_nor_idle(cap):
    same = np.repeat(normal(1, 3), 12, axis=0)
    ids = np.repeat(np.arange(4), 3) if cap else None
    mechanism = LabelGaussian(1.0, delta=1e-6, ties=1, records_per_person=cap)
    design = mechanism.prepare(with_marks(same, 1), persons=ids)
    case = design.worst_case(REPLACE_ONE)
    moved = math.sqrt(moved_squared(design, case.one, case.other))
    assert moved <= design.moved <= moved * (1 + 2.0**-18)
    ratios = design.log_ratio(design.repeat(case.one, 4000, entropy=SimulatedEntropy(1)), case)
    assert ratios.mean() == pytest.approx(mechanism.mu**2 / 2, abs=6.5 * mechanism.mu / 63)


class TiesOnTop(LabelDesign):
    """How far a label moves the sum is measured without its ties."""

    def __post_init__(self):
        super().__post_init__()
        self._hide(label_sum.lengths(self.halves, self.parts), self.persons)


def test_ties_that_weigh_too_much_or_are_forgotten_are_refuted():
    given_rows = with_marks(ROWS, 1)
    design = LabelGaussian(1.0, delta=1e-6, ties=1).prepare(given_rows)
    heavy = replace(design, tied=2 * design.tied)
    assert moves_too_much(heavy) == set()  # for the noise grows with it
    assert moves_too_much(as_class(TiesOnTop, heavy)) == {"label"}
    assert total(design, np.full(40, 2))[-1] == 40 * design.mechanism.tie_steps


def test_only_marks_are_counters_and_only_halves_are_ties():
    mechanism = LabelGaussian(1.0, delta=1e-6, ties=1)
    with pytest.raises(DataError, match="must hold 0 or 1"):
        mechanism.prepare(np.hstack([ROWS, np.full((40, 1), 2.0)]))
    with pytest.raises(UsageError, match="ratings have none"):
        mechanism.prepare(with_marks(ROWS, 1), parts=4)
    with pytest.raises(UsageError, match="leave no column"):
        replace(mechanism, ties=5).prepare(ROWS)
    with pytest.raises(UsageError, match="leave longest out"):
        replace(mechanism, longest=1.0)


def test_the_same_integers_are_added_of_files_and_ties_of_short_rows_are_hidden():
    given_rows, labels = with_marks(ROWS, 3), np.random.default_rng(2).integers(0, 3, 40)
    mechanism = LabelGaussian(1.0, delta=1e-6, ties=3)
    design = mechanism.prepare(given_rows)
    in_files = ChunkedLabels(mechanism, design.ellipsoid)
    rows = Rows.of(sparse.csr_array(given_rows), labels.astype(np.int8))
    added = in_files.total(rows)
    assert added.added.total.tolist() == total(design, labels)
    assert added.moved == design.moved
    assert added.factor.shape == design.factor.shape == (7, 7)
    given_rows[:, :4] *= 0.3  # a tie is then farther from a win than a win from a loss
    added = in_files.total(Rows.of(given_rows, labels.astype(np.int8)))
    halves = np.rint(ROWS * 0.3 @ design.ellipsoid.whiten.T / (2 * mechanism.grid))
    moves = label_sum.lengths(halves.astype(np.int32), 2, design.tied)
    assert added.moved == moves.max() / label_sum.FINER > 2 * np.linalg.norm(halves, axis=1).max()


@pytest.mark.parametrize("weight", [-1.0, 0.0, 2.0, np.nan])
def test_a_row_that_counts_more_than_whole_or_less_than_nothing_is_refused(weight):
    """Once the noise was measured on the other row, however far this one moved the sum."""
    made = LabelGaussian(1.0, delta=1e-6)
    with pytest.raises(DataError):
        made.prepare(ROWS[:2], weights=np.array([weight, 1.0]))
    design = made.prepare(ROWS[:2], weights=np.array([0.5, 1.0]))
    with pytest.raises(DataError, match="above 0 and at most 1"):
        replace(design, weights=np.array([weight, 1.0]))


def test_a_design_that_forgets_whose_rows_they_are_is_refused():
    """It would promise a person what hides one row."""
    made = LabelGaussian(1.0, delta=1e-6, records_per_person=2)
    design = made.prepare(ROWS[:4], persons=["a", "a", "b", "b"])
    with pytest.raises(UsageError, match="persons is needed"):
        replace(design, persons=None)


@pytest.mark.parametrize("parts", [2, 4, 38])
@pytest.mark.parametrize("grown", [2.1, 4.0, 10.0])
def test_rows_that_grew_while_files_were_read_are_refused(parts, grown):
    """Squares of ratings passed 64 bits, and the noise was up to 1,800 times too small."""
    made = LabelGaussian(1.0, delta=1e-6, grid=2.0**-24)
    in_files = ChunkedLabels.prepare(made, Rows.of(ROWS), parts=parts)
    with pytest.raises(DataError, match="changed while it was read"):
        in_files.total(Rows.of(ROWS * grown, np.zeros(40, np.int8)))
