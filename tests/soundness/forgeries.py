"""What tests of forged runs share: the two files of a run, changed in memory and audited anew."""

import copy
import hashlib
import json
from functools import cache

from sordino._files import to_json
from sordino.auditing.findings import Audit
from sordino.auditing.runs.replay import StoredRun, _Case, _supported, read_ledger
from sordino.privacy.ledger_chain import canonical_json
from sordino.rewards.model import RewardModel


def put(whole, path, value):
    """Set what lies at a path of parsed JSON, and return what was there."""
    for step in path[:-1]:
        whole = whole[step]
    old = whole.get(path[-1]) if isinstance(whole, dict) else whole[path[-1]]
    whole[path[-1]] = value
    return old


class Forgery:
    """Two files of an honest run, to be tampered with."""

    def change(self, name, *path, to):
        """Set one value of a file."""
        whole = self.read(name)
        put(whole, path, to)
        self.write(name, whole)

    def reseal(self):
        """Make every digest of the reward fit again, as a careful forger would."""
        result, reward = self.read("result.json"), self.read("reward.json")
        policy = {"reward": reward, "temperature": result["policy"]["temperature"]}
        digest = hashlib.sha256(canonical_json(policy).encode()).hexdigest()
        result["certificate"]["digest"] = digest
        result["reward_sha256"] = hashlib.sha256(self.content("reward.json")).hexdigest()
        self.write("result.json", result)

    def refuted_by(self):
        return self.audit().refuted_by


class Draft(Forgery):
    """What both files hold, in memory, beside the ledger as it was read once."""

    def __init__(self, folder, to, ledger=None):
        self.to = to
        files = ("result.json", "reward.json")
        self.contents = {file: (folder / file).read_bytes() for file in files}
        self.values = {file: json.loads(content) for file, content in self.contents.items()}
        self.ledger = ledger_of(ledger or folder / "spend.db")

    def read(self, name):
        return copy.deepcopy(self.values[name])

    def write(self, name, value):
        self.values[name] = value
        self.contents[name] = to_json(value).encode()

    def content(self, name):
        return self.contents[name]

    def audit(self):
        self.to.mkdir(exist_ok=True)
        (self.to / "reward.json").write_bytes(self.contents["reward.json"])
        reward = RewardModel.load(self.to / "reward.json")
        sha256 = hashlib.sha256(self.contents["reward.json"]).hexdigest()
        run = StoredRun.of(self.read("result.json"), self.read("reward.json"), reward, sha256)
        findings = tuple(_supported(_Case.of(run, self.ledger)))
        return Audit(kind="run", subject="x", claim=run.claim, findings=findings)


@cache
def ledger_of(path):
    return read_ledger(path)
