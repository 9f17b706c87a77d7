"""Writes tests/loaders.json, for the APIs of this environment, and the table of docs/loaders.md from it.

    PYTHONPATH=.dev python tests/make/loaders.py TARGET ...    # `--check` only says whether the page is current
"""
import json
import os
import pathlib
import sys
import tempfile
import warnings

from regions import renew

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = pathlib.Path(TESTS, "loaders.json")
TARGETS = ("tf_train", "get_updates", "optimizer_v2", "update_step", "keras3")


def shown(outcome):
    """Returns an outcome in words."""
    if "raises" in outcome:
        return "raises {}".format(outcome["raises"])
    slots = {"all": "all slots", "some": "slots of others", "none": "no slots"}[outcome["slots"]]
    hypers = ["{} {}".format(name, outcome[name]) for name in ("rate", "momentum") if name in outcome]
    return ", ".join([slots, "count {}".format(outcome["count"])] + hypers) + "; warns" * bool(outcome.get("warns"))


def page(record):
    lines = ["| loader | case | stock | everstep |", "| --- | --- | --- | --- |"]
    for target in TARGETS:
        lines.append("| **{}, {}** | | | |".format(record[target]["version"], target))
        for key, outcomes in sorted(record[target]["outcomes"].items()):
            stock, ours = map(shown, outcomes)
            lines.append("| {} | {} | {} | {} |".format(*key.split(": "), stock, "the same" if ours == stock else ours))
    return "\n".join(lines) + "\n"


def measure(record, targets):
    sys.path[:0] = [TESTS, os.path.join(os.path.dirname(TESTS), "matrix")]
    import test_loaders

    for target in targets:
        outcomes = {}
        for each, loader, case in test_loaders.PARAMETERS:
            if each == target:
                folder = Folder(tempfile.mkdtemp())
                outcomes["{}: {}".format(loader, case)] = test_loaders.both(target, loader, case, folder)
        record[target] = {"version": test_loaders.version(test_loaders.WORLDS[target]), "outcomes": outcomes}
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


class Folder(str):
    def join(self, name):
        return os.path.join(self, name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if "--check" not in sys.argv:
        measure(record, sys.argv[1:])
    if set(TARGETS) == set(record):
        sys.exit(renew("loaders.md", "what arrives", "loaders.py", page(record)))
