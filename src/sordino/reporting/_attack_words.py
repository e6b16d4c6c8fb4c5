"""Every attack of an audit in plain words: a title, and one sentence on what it tries."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ATTACKS"]

ATTACKS: Mapping[str, tuple[str, str]] = {
    "distinguishing-game": (
        "Telling two inputs apart",
        (
            "Runs the mechanism many times on two inputs that differ by one change, and tells "
            "from the output which of them it was."
        ),
    ),
    "worst-canary": (
        "One step with a made-up unit, or without it",
        (
            "Looks for a unit whose answers pull the model one way, takes many noisy steps with it "
            "and without it, and tells from a step which of them it was."
        ),
    ),
    "noise": (
        "Noise on every tensor",
        "Takes a step that nobody is in, and compares each tensor's noise with what is stated.",
    ),
    "sampler": (
        "Who takes part",
        "Draws many batches of made-up units, and compares who is in them with what was counted.",
    ),
    "gradients": (
        "Gradients of whole units",
        "Compares clipped gradients of made-up units with those of one unit at a time.",
    ),
    "one-run-steps": (
        "Canaries of one run, seen step by step",
        (
            "Puts made-up units into a run by coins, and guesses every coin from the noisy "
            "gradients and weights of all steps."
        ),
    ),
    "one-run-weights": (
        "Canaries of one run, seen in its weights",
        (
            "Puts made-up units into a run by coins, and guesses every coin from the weights "
            "before and after."
        ),
    ),
    "position": (
        "Order of the two answers",
        (
            "Bets that the order in which the two answers of a row are written tells which one "
            "was preferred."
        ),
    ),
    "id-hash": (
        "Ids made from the preference",
        (
            "Makes the ids of the rows again from the texts, with known recipes: if only the "
            "preferred order of the answers gives the id, the id tells the label."
        ),
    ),
    "seed": (
        "Coin flips that can be repeated",
        "Repeats the coin flips with known recipes and seeds, and takes them back.",
    ),
    "row-order": (
        "Order of the rows",
        "Looks whether the place of a row in the file tells its label.",
    ),
    "time": ("Time stamps", "Looks whether the time of a row tells its label."),
    "column": (
        "Another column",
        "Looks for a column, other than the released answer, that tells the label.",
    ),
    "flip-rate": (
        "How often answers were flipped",
        (
            "Counts against the raw file how many answers were flipped: if fewer were than the "
            "claim needs, the answers say more than it allows."
        ),
    ),
    "shared-coin": (
        "One coin for several answers",
        "Looks whether answers that should be flipped independently were flipped together.",
    ),
    "person-coin": (
        "One coin for one person",
        "Looks whether all answers of one person were flipped together, or all not.",
    ),
    "reused-coin": (
        "One coin for a changed answer",
        "Looks whether a person who changed a judgment was answered by the same flip again.",
    ),
    "label-flips": (
        "One label flipped less often than the other",
        "Compares how often each answer was written for either label.",
    ),
    "block-flips": (
        "Parts of the file flipped less often",
        "Counts the flips in every part of the file, and in every second, third, tenth row.",
    ),
    "stratum-flips": (
        "Rows alike flipped less often",
        "Counts the flips among rows alike in lengths, orders, persons and other columns.",
    ),
    "neighbor-flips": (
        "Flips that follow from those of other rows",
        "Counts the flips at each distance from a flip, and from a label that was kept.",
    ),
    "exact-flips": (
        "Numbers of flips that were fixed",
        "Looks whether just the expected number of labels is flipped, again and again.",
    ),
    "releases": (
        "Several releases in one folder",
        "Looks for questions that were answered in several releases, whose losses add up.",
    ),
    "shared-answers": (
        "People who agree too often",
        (
            "Looks whether different people agree on one question more often than independent "
            "flips let them."
        ),
    ),
    "repeats": (
        "Questions asked again",
        (
            "Looks for a person who answered one question several times: each answer is flipped "
            "afresh, so the flips average out."
        ),
    ),
    "constant-truth": (
        "One place that always wins",
        (
            "Looks whether one place wins as often as if it were always right before the flips: "
            "then the order written is the preference."
        ),
    ),
    "join": ("The raw file", "Looks up the true label of every row in the raw file."),
    "content": (
        "What the texts tell",
        (
            "Predicts answers from the texts, such as their lengths. People do prefer some "
            "texts, so success at it breaks no claim."
        ),
    ),
    "surroundings": (
        "What lies beside the file",
        "Looks beside the file for raw labels, and for other answers to the same questions.",
    ),
    "manifest": (
        "What the manifest tells",
        (
            "Looks in the manifest for more than a claim needs: counts of flips, seeds, traces "
            "of raw files."
        ),
    ),
    "chain": (
        "Chain of the ledger",
        "Computes again the hash that ties every row of the ledger to the row before it.",
    ),
    "head": ("Head of the ledger", "Looks in the ledger for the head that the run names."),
    "digests": (
        "Digests of the files",
        "Compares every file with the digest that was recorded for it.",
    ),
    "entries": (
        "Entries of the ledger",
        "Looks for the entry of the ledger that paid for each release.",
    ),
    "totals": (
        "Totals",
        (
            "Adds up again what the entries of the ledger paid for, and compares it with what "
            "is stated."
        ),
    ),
    "claim": (
        "The claim itself",
        (
            "Compares what is claimed with what the manifest states, or with what the ledger "
            "supports."
        ),
    ),
    "caveats": ("Caveats", "Looks for caveats that should have been stated and were not."),
    "mechanism": (
        "Mechanism",
        "Compares the mechanism that the run describes with the one that was paid for.",
    ),
    "budget": ("Budget", "Compares what was spent with the budget."),
    "report": ("Report page", "Compares the promise on the report page with the one of the run."),
    "strays": ("Raw files left behind", "Looks beside the run for files that hold raw judgments."),
}
"""By the name that a finding carries; an attack that is not in it goes by its name."""
