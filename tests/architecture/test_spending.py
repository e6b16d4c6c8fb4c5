"""Whoever can spend takes ``ledger=``; nobody else does, and the entry comes before the noise."""

import ast
import re

SPENDERS = {
    "sordino.algorithms.online_alignment.align_online",
    "sordino.algorithms.policy_optimization.optimize",
    "sordino.algorithms.offline_bandit.count_tested_policy",
    "sordino.policies.gibbs.draw",
    "sordino.policies.gibbs.draw_each",
    "sordino.policies.gibbs.draw_many",
    "sordino.rewards.bandits.screen",
    "sordino.rewards.withheld.reveal",
    "sordino.privatization.answers.privatize_choices",
    "sordino.privatization.answers.privatize",
    "sordino.privatization.chunks.privatize_chunks",
    "sordino.privatization.answers.use_unprotected",
    "sordino.rewards.estimation.fit_reward",
    "sordino.rewards.label_release.release_labels",
    "sordino.rewards.label_release.release_sum",
    "sordino.rewards.private_metrics.measure_labels",
    "sordino.rewards.private_metrics.measure_records",
    "sordino.rewards.ranking_fit.fit_ranked_records",
    "sordino.rewards.ranking_fit.fit_rankings",
    "sordino.rewards.ranking_fit.release_rankings",
    "sordino.rewards.record_release.fit_records",
    "sordino.rewards.vote_release.release_ballots",
    "sordino.rewards.vote_release.release_votes",
}
BY_TRANSFORMERS = {  # whose loop calls `training_step`, which no name here leads to
    "sordino.language.studies.pipeline.train",
}
COMMANDS = {"runs", "cli"}  # what a command does, and how it is called
LEDGER = "sordino.privacy.ledger"
STEPS = {
    "sordino.language.dp_sgd.privacy.pay",  # the steps of a run up to its next checkpoint
    "sordino.language.user_level.pay",  # the updates of one batch of people
    "sordino.language.dp_sgd.training.training_step",  # transformers says what it takes
    "sordino.privatization.randomization.pay",  # the one step that all randomizations share
}
DRAWS = {"answers", "release", "release_ranked_records", "release_records"}
MADE_UP = {  # played on made-up inputs, to audit a mechanism
    "sordino.auditing.statistical.distinguishing._played",
    "sordino.mechanisms.randomized_response._releases",
}
FREE_DRAWS = {  # whose `draw` is another: of a released policy, of what an attacker tosses again
    "sordino.auditing.releases.recipes",
    "sordino.policies.gibbs",
}
ENTROPY = "sordino._random"
SEEDED = {
    "sordino.environments.annotators",
    "sordino.environments.preference_worlds",
}
IMITATED = {"sordino.auditing.releases.recipes"}  # bad coins of others, tossed again


def dotted(function):
    return f"{function.module.name}.{function.name}"


def test_a_keyword_ledger_means_that_it_spends(functions):
    takes = {
        dotted(function)
        for function in functions
        if "Ledger" in function.keyword_only.get("ledger", "")
        and function.public
        and function.module.stage != "cli"
    }
    calls = {"sordino.runs.alignment.align", "sordino.runs.rank_run.rank"}
    assert takes == SPENDERS | BY_TRANSFORMERS | calls


def test_nobody_else_reaches_a_reservation(functions):
    """Follow the calls by name, from ``reserve`` and ``charge`` up, outside commands."""
    known = {"reserve", "charge"}
    reached = set()
    outside = [f for f in functions if f.module.stage not in COMMANDS and f.module.name != LEDGER]
    while True:
        more = {f.where for f in outside if known & _called(f)} - reached
        if not more:
            break
        reached |= more
        known |= {f.name for f in outside if f.where in more}
    public = {dotted(f) for f in outside if f.where in reached and not f.name.startswith("_")}
    assert public == SPENDERS | STEPS


def _called(function):
    """Return the names of what a function calls, but for draws that spend nothing."""
    names = {name for name, _ in function.calls}
    own = function.module.stage == "mechanisms" or function.module.name in FREE_DRAWS
    return names - {"draw"} if own else names


def test_the_entry_is_written_before_noise_is_drawn(functions):
    checked = 0
    for function in functions:
        reserved = [line for name, line in function.calls if name in {"reserve", "charge"}]
        drawn = [line for name, line in function.calls if name in DRAWS]
        if reserved and drawn:
            checked += 1
            assert min(reserved) < min(drawn), function.where
    assert checked >= 8


def test_noise_is_released_in_one_place(functions):
    callers = {
        dotted(function)
        for function in functions
        if any(name == "release" for name, _ in function.calls)
    }
    assert (
        callers
        == {
            "sordino.algorithms.online_alignment._answers",
            "sordino.algorithms.policy_optimization.direction",
            "sordino.mechanisms.regressions.gaussian._solution",
            "sordino.policies.gibbs._paid",
            "sordino.privatization.answers.privatize_choices",
            "sordino.privatization.answers.privatize",
            "sordino.privatization.people._drawn",
            "sordino.privatization.chunks._drawn",
            "sordino.privatization.answers.use_unprotected",
            "sordino.rewards.bandits.screen",
            "sordino.rewards.label_release.prepare",
            "sordino.rewards.private_metrics.measure_records",
            "sordino.rewards.ranking_fit.release_ranked_records",
            "sordino.rewards.ranking_fit.release_rankings",
            "sordino.rewards.record_release.release_records",
            "sordino.rewards.vote_release.release_ballots",
        }
        | MADE_UP
    )


def test_mechanisms_know_no_ledger(modules):
    for module in modules:
        if module.stage == "mechanisms":
            imported = {
                node.module for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)
            }
            assert not any((name or "").endswith("privacy.ledger") for name in imported)


def test_entropy_and_time_come_from_one_place(modules):
    """So that a test can replace them, and so that no seed hides anywhere else."""
    wrong = []
    clock = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\b")
    for module in modules:
        if module.name in {ENTROPY, *SEEDED, *IMITATED}:
            continue
        for node in ast.walk(module.tree):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            if isinstance(node, ast.Import | ast.ImportFrom):
                roots = {getattr(node, "module", None) or "", *names}
                if roots & {"secrets", "random", "time", "uuid"}:
                    wrong.append(f"{module.name}:{node.lineno} imports {sorted(roots)}")
            if isinstance(node, ast.Attribute) and node.attr in {"urandom", "default_rng"}:
                wrong.append(f"{module.name}:{node.lineno} {node.attr}")
        wrong += [
            f"{module.name} {found[0]}" for found in clock.finditer(module.path.read_text("utf-8"))
        ]
    assert not wrong, "\n".join(wrong)
