"""Folders of weights are certified by digest and audited from their ledger, as runs are.

Nothing is a matter of chance: every honest folder passes, and every forgery here is caught.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from functools import partial

import pytest
from tests.tiers import few

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from peft import LoraConfig

import sordino
from sordino import cli
from sordino._files import sha256_of
from sordino.auditing.runs.replay import audit_run
from sordino.errors import DataError
from sordino.language import (
    CentralPolicyConfig,
    CentralPolicyTrainer,
    PrivateDPOConfig,
    PrivateDPOTrainer,
    PrivateRewardConfig,
    PrivateRewardTrainer,
    RebelConfig,
    RebelTrainer,
    SlotPrivacy,
)
from sordino.language.models.promises import CheckpointPromise, certify_checkpoint
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privacy.ledger import Ledger

from ._training import QUIETLY, privacy, trained
from .conftest import true_reward

STEP = {**QUIETLY, "max_steps": 1, "use_cpu": True}
CHECKS = {
    "chain", "head", "digests", "entries", "totals", "claim", "caveats", "mechanism", "budget",
    "report", "strays",
}  # fmt: skip


@pytest.fixture
def written(tiny_llama, word_pairs, open_ledger, ledger_of, central, tmp_path):
    """Return a maker of folders that trainers write, and of the ledgers that paid."""
    out, start = str(tmp_path / "out"), str(tiny_llama)

    def liked(completions, **_):
        return [true_reward(text) for text in completions]

    def make(kind):
        if kind == "records":
            ledger, terms = ledger_of(), privacy(steps=2)
            trainer = central(ledger=ledger, terms=terms)
        elif kind == "persons":  # two batches, of which the worst one counts
            terms = SlotPrivacy(4.0, 1e-6, neighbors=REPLACE_ONE, slots=2, batches=2)
            ledger = ledger_of(delta=1e-6, unit="person", neighbors=REPLACE_ONE)
            trainer = CentralPolicyTrainer(
                start, CentralPolicyConfig(out, max_completion_length=4, **QUIETLY),
                reward_funcs=liked, declare_unread=True, privacy=terms, ledger=ledger,
                train_dataset=[{"person": f"p{i}", "prompt": "tell me"} for i in range(4)],
            )  # fmt: skip
        else:
            ledger, coin = open_ledger(1.0), sordino.RandomizedResponse(1.0)
            pairs = sordino.privatize(word_pairs(16), coin, ledger=ledger)
            if kind == "labels":
                args = PrivateRewardConfig(out, **STEP)
                trainer = PrivateRewardTrainer(start, args, train_dataset=pairs)
            elif kind == "adapters":
                args = PrivateDPOConfig(out, **{**STEP, "save_strategy": "steps", "save_steps": 1})
                lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
                trainer = PrivateDPOTrainer(start, args=args, train_dataset=pairs, peft_config=lora)
            else:
                trainer = RebelTrainer(
                    start, RebelConfig(out, max_completion_length=4, **STEP), reward_funcs=liked,
                    train_dataset=["tell me"] * 8,
                    promise=CheckpointPromise.of(pairs, kind="reward"),
                )  # fmt: skip
        trained(trainer)
        if kind == "adapters":  # as a run keeps them, to be resumed
            return tmp_path / "out/checkpoint-1", ledger
        trainer.save_model(tmp_path / "kept")
        return tmp_path / "kept", ledger

    return make


def edited(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def weights_of(folder):
    return next(folder.glob("*model.safetensors"))


def other_weights(folder):
    path = weights_of(folder)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def smaller(values):
    values["guarantee"]["epsilon"] /= 2


def smaller_everywhere(folder):
    """Whoever forges a promise forges it in every file, and its sources with it."""

    def change(values):
        for each in (values, *values["sources"]):
            smaller(each)

    edited(folder / "sordino.json", change)
    if (folder / "config.json").exists():
        edited(folder / "config.json", lambda config: change(config["sordino_promise"]))
        listed(folder)


def listed(folder):
    """Let the promise speak for the files as they are now."""
    edited(folder / "sordino.json", lambda values: values["files"].update(
        {name: sha256_of(folder / name) for name in values["files"]}
    ))  # fmt: skip


def exchanged(folder):
    other_weights(folder)
    listed(folder)


def without(folder, caveat):
    for name, at in (("sordino.json", ()), ("config.json", ("sordino_promise",))):
        if not (folder / name).exists():
            continue
        values = json.loads((folder / name).read_text())
        told = values[at[0]] if at else values
        for each in (told, *told["sources"]):
            each["caveats"].remove(caveat)
        (folder / name).write_text(json.dumps(values))
    if (folder / "config.json").exists():
        listed(folder)


def louder(folder):
    edited(
        folder / "sordino.json", lambda v: v["training"]["privacy"].update(noise_multiplier=99.0)
    )


def one_more(folder):
    """A second release of which no ledger knows the answers."""
    edited(
        folder / "sordino.json",
        lambda v: v["sources"].append({**v["sources"][0], "artifact": "0" * 64}),
    )


def one_beside(folder):
    """Whoever loads the folder loads this too, though nothing speaks for it."""
    names = ("adapter_config.json", "model.safetensors")
    next(folder / name for name in names if not (folder / name).exists()).write_text("{}")
    (folder / "certificate.json").unlink()


FORGERIES = {
    "other weights": (other_weights, "digests"),
    "an adapter beside": (one_beside, "digests"),
    "weights and what is said of them": (exchanged, "digests"),
    "another certificate": (
        lambda folder: edited(folder / "certificate.json", lambda v: v.update(digest="0" * 64)),
        "digests",
    ),
    "a smaller certificate": (
        lambda folder: edited(folder / "certificate.json", smaller), "totals",
    ),
    "a smaller promise": (lambda folder: edited(folder / "sordino.json", smaller), "claim"),
    "smaller everywhere": (smaller_everywhere, "claim"),
    "another head": (
        lambda folder: edited(folder / "certificate.json", lambda v: v["ledger"].update(rows=1)),
        "head",
    ),
    "one more release": (one_more, "entries"),
    "other answers": (
        lambda folder: edited(
            folder / "sordino.json", lambda v: v["sources"][0].update(artifact="0" * 64)
        ),
        "entries",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", few(["labels", "adapters", "rebel", "records", "persons"], "labels", "persons")
)
def test_every_folder_of_a_trainer_is_certified_and_audited(written, tmp_path, capsys, kind):
    folder, ledger = written(kind)
    spend = ["--ledger", str(ledger.path)]
    before, own = ledger.path.read_bytes(), Ledger.read(ledger.path)
    bare = audit_run(folder, ledger=ledger.path)
    assert (bare.verdict, bare.refuted_by) == ("not refuted", ()), bare.to_dict()
    assert {one.attack for one in bare.findings if not one.ran} == {"head", "totals", "report"}
    capsys.readouterr()  # what training printed
    assert cli.run(["report", str(folder), *spend, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    signed = told["certificate"]
    assert signed["artifact"] == ("reward" if kind in {"labels", "records"} else "policy")
    assert set(signed["release_ids"]) == {row.release_id for row in own.spends}
    assert signed["guarantee"]["epsilon"] == pytest.approx(own.total().epsilon)
    assert signed["ledger"]["head"] in (folder / "report.html").read_text()
    assert cli.run(["audit", "run", str(folder), *spend, "--json"]) == 0, capsys.readouterr()
    told = json.loads(capsys.readouterr().out)
    assert {one["attack"]: one["outcome"] for one in told["findings"]} == dict.fromkeys(
        CHECKS, "clear"
    )
    assert ledger.path.read_bytes() == before
    assert cli.run(["report", str(folder), *spend]) == 2  # the page is there
    capsys.readouterr()
    copies = iter(range(99))

    def caught(change):
        copied = tmp_path / f"copy-{next(copies)}"
        shutil.copytree(folder, copied)
        change(copied)
        return audit_run(copied, ledger=ledger.path)

    for name, (change, attack) in FORGERIES.items():
        assert attack in caught(change).refuted_by, name
    caveat = {"records": "timing", "persons": "declared-disjoint"}.get(
        kind, "randomized-at-ingestion"
    )
    assert "caveats" in caught(partial(without, caveat=caveat)).refuted_by
    if kind in {"records", "persons"}:
        assert "mechanism" in caught(louder).refuted_by


def test_without_its_entry_or_its_ledger_nothing_supports_a_checkpoint(
    written, tmp_path, open_ledger, capsys
):
    folder, ledger = written("labels")
    audit = ["audit", "run", str(folder)]
    assert cli.run(audit) == 6  # no ledger
    shutil.copy(ledger.path, tmp_path / "kept.spend.db")  # where the command line keeps it
    assert cli.run(audit) == 0
    assert cli.run([*audit, "--ledger", str(open_ledger(1.0).path)]) == 5  # another one
    cut = tmp_path / "cut.db"
    shutil.copy(ledger.path, cut)
    for statement, report in (
        ("DELETE FROM rows WHERE kind = 'commit'", 2),  # the last one: cut short, nothing is odd
        ("UPDATE rows SET count = 2", 8),
    ):
        with closing(sqlite3.connect(cut)) as connection:
            for verb in ("update", "delete"):
                connection.execute(f"DROP TRIGGER IF EXISTS no_{verb}")
            connection.execute(statement)
            connection.commit()
        assert cli.run([*audit, "--ledger", str(cut)]) == 5
        assert cli.run(["report", str(folder), "--ledger", str(cut)]) == report
    assert not (folder / "certificate.json").exists()
    other_weights(folder)
    with pytest.raises(DataError, match=r"model\.safetensors is not the file.*Nothing was certif"):
        certify_checkpoint(folder, ledger.path)
    capsys.readouterr()
