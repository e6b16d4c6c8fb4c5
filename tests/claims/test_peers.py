"""Methods beside ours that were published since: what they promise and what is true of it."""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

import sordino
from sordino.privacy.conversions import gaussian_mu

PARTS, LARGER = 5, 4  # clusters, and what the published least size of a cluster adds to them


def published_rewards(rows: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the rows of every cluster that gets a reward, as the published code chooses them.

    Centers are private (here: very, they are drawn without a look at the rows). Which clusters get
    a reward, and with which weight one is drawn to label a prompt, follows from exact sizes.
    """
    centers = generator.standard_normal((PARTS, rows.shape[1]))
    nearest = ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    clusters = [rows[nearest == part] for part in range(PARTS)]
    return [part for part in clusters if len(part) >= int(len(rows) / (PARTS + LARGER))]


def test_sizes_of_clusters_that_are_told_exactly_refute_the_synthesis():
    """One replaced record decides whether a second reward exists, whatever noise is in it.

    Claim: Others, DPPrefSyn, arXiv 2605.30808: the published code keeps the (ε, δ) that it computes
    Verdict: false: the sizes of clusters decide which rewards exist and how often each is used, and
        no noise is accounted for them (one replaced record: a second reward in most runs against
        none, so that δ is above 1/2 for every ε, against a claimed 1/n); batches of a
        rate that follows from the exact size are a second leak
    Ours: sordino.ObjectivePerturbation: one release of whole records;
        sordino.runs.alignment.align and then `sordino synthesize` label public prompts
    """
    one = np.array([1.0, 0.0, 0.0])
    least = 900 // (PARTS + LARGER)
    data = np.array([-one] * least + [one] * (900 - least))
    neighbor = np.array([-one] * (least - 1) + [one] * (901 - least))
    seeds = range(400)
    # Two rewards come out where the centers part the two directions, which needs no private row.
    found = [
        sum(len(published_rewards(rows, np.random.default_rng(seed))) == 2 for seed in seeds)
        for rows in (data, neighbor)
    ]
    assert found[0] / len(seeds) > 0.5
    assert found[1] == 0


def test_labels_that_a_private_model_gives_cost_nothing():
    """The second stage reads a randomized label once, and a model of other randomized labels.

    Claim: Others, PROPS, arXiv 2508.06783: two stages are ε-private for labels
    Verdict: true: every label goes through one coin and all else is made of answers; with a linear
        reward it is no better than a debiased fit by more than .01 of accuracy, nor worse
        (benchmarks/utility/peers.py)
    Ours: sordino.RandomizedResponse: one coin for each label, and sordino.fit_reward
    """
    coin = sordino.RandomizedResponse(1.0)
    chances = np.array([[1 - coin.flip_probability, coin.flip_probability]])
    chances = np.vstack([chances, chances[:, ::-1]])  # of an answer (columns) by label (rows)
    # Any rule of the second stage is a channel of the answer; no channel raises the loss.
    rules = np.random.default_rng(0).dirichlet([1.0, 1.0], size=(200, 2))
    losses = [np.abs(np.log((chances @ rule)[0] / (chances @ rule)[1])).max() for rule in rules]
    assert max(losses) <= 1.0 + 1e-12


def test_a_vote_moves_the_gradient_by_the_same_wherever_it_is_taken():
    """log σ enters with the label as y·(r_i − r_j) alone: the curvature knows no label.

    Claim: Others, Cai et al., arXiv 2507.09388: a perturbed likelihood of comparisons is ε-private
        for each
    Verdict: true: a changed outcome moves the linear term by e_i − e_j and nothing else, so Laplace
        noise of scale 2/ε on it is enough, and the fit is made of a noised sum of wins
    Ours: sordino.LabelGaussian: the same sum with Gaussian noise, which also hides persons by their
        norm; `sordino.rank` fits it
    """
    generator = np.random.default_rng(1)
    items, pairs = 4, [(0, 1), (1, 2), (0, 3)]

    def gradient(ratings: np.ndarray, wins: tuple[int, ...]) -> np.ndarray:
        total = np.zeros(items)
        for (i, j), won in zip(pairs, wins, strict=True):
            error = expit(ratings[i] - ratings[j]) - won
            total[i] += error
            total[j] -= error
        return total

    for _ in range(20):
        ratings = generator.normal(size=items)
        moved = gradient(ratings, (1, 0, 1)) - gradient(ratings, (0, 0, 1))
        assert np.allclose(moved, [-1, 1, 0, 0])
        assert math.isclose(np.abs(moved).sum(), 2.0)


def test_debiased_comparisons_estimate_the_true_scores():
    """With one ε for all, adaptive weights are equal, and what is left is debiasing.

    Claim: Others, Xu et al., arXiv 2402.16792: debiased randomized comparisons estimate the true
        scores
    Verdict: true; fitted as they come, randomized votes draw all ratings together
    Ours: sordino.rewards.pair_losses.DebiasedLogistic, by which `sordino rank --noise labels` fits
    """
    flip, gap = sordino.RandomizedResponse(1.0).flip_probability, 1.5
    told = expit(gap) * (1 - 2 * flip) + flip
    assert math.isclose((told - flip) / (1 - 2 * flip), expit(gap), rel_tol=1e-12)
    assert np.log(told / (1 - told)) < gap / 2


def test_a_square_loss_over_chances_is_consistent_once_debiased():
    """E(z − p)² with E z = the true chance is least at it.

    Claim: Others, SquareχPO, arXiv 2505.21395: a square loss over chances, debiased, stays
        consistent
    Verdict: true: its minimizer is the chance itself, for randomized labels too; it is not
        built, for the debiased logistic loss has the same minimizer
    Ours: sordino.rewards.pair_losses.DebiasedLogistic
    """
    flip = sordino.RandomizedResponse(0.5).flip_probability
    for chance in (0.2, 0.5, 0.9):
        told = chance * (1 - 2 * flip) + flip
        high, low = (1 - flip) / (1 - 2 * flip), -flip / (1 - 2 * flip)

        def loss(p: float, told: float = told, high: float = high, low: float = low) -> float:
            return told * (high - p) ** 2 + (1 - told) * (low - p) ** 2

        assert math.isclose(minimize_scalar(loss, (0, 1)).x, chance, abs_tol=1e-6)


def test_coins_for_each_label_hide_persons_poorly():
    """With m labels a person, coins have ε/m each; a sum has noise for m of them once.

    Claim: Others, AUP-RLHF, arXiv 2502.17515: randomized response of each label is a poor way to
        hide persons
    Verdict: true: the variance that coins add to a sum of n labels grows by m² for one person's m
        labels, that of Gaussian noise on the sum does not grow with n (at n = 20,000, m = 10,
        ε = 2: 32 times the deviation)
    Ours: sordino.LabelGaussian: `records_per_person`; sordino.language trains with persons clipped
    """
    n, labels, epsilon = 20_000, 10, 2.0
    flip = sordino.RandomizedResponse(epsilon / labels).flip_probability
    of_coins = math.sqrt(n * flip * (1 - flip)) / (1 - 2 * flip)
    of_sum = labels / gaussian_mu(epsilon, 1e-6)
    assert 31 < of_coins / of_sum < 32
