"""Runs pyright and mypy on right.py and wrong.py against everstep as it is installed: python tests/typing/check.py

Each must report every line of wrong.py that is marked `# error`, and no other line of either file. They run in an empty
folder, so that they read no settings of this project and no source but the installed package's.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ("right.py", "wrong.py")
PYRIGHT = {"typeCheckingMode": "standard", "reportUnusedExpression": "none"}


def marked(name):
    """{(file, line)} of the lines that hold a mistake."""
    with open(os.path.join(HERE, name), encoding="ascii") as file:
        return {(name, number) for number, line in enumerate(file, 1) if line.rstrip().endswith("  # error")}


def run_pyright(folder):
    """{(file, line): message} of the errors that pyright reports."""
    with open(os.path.join(folder, "pyrightconfig.json"), "w") as file:
        json.dump(PYRIGHT, file)
    command = ["basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", folder]
    found = json.loads(run(command, folder))["generalDiagnostics"]
    return {(os.path.basename(each["file"]), each["range"]["start"]["line"] + 1): each["message"]
            for each in found if each["severity"] == "error"}


def run_mypy(folder):
    """{(file, line): message} of the errors that mypy reports."""
    command = [sys.executable, "-m", "mypy", "--config-file=", "--check-untyped-defs", "--no-error-summary"]
    lines = run(command + ["--python-executable", sys.executable] + list(FILES), folder).splitlines()
    found = [re.match(r"(\w+\.py):(\d+): error: (.*)", line) for line in lines]
    return {(each.group(1), int(each.group(2))): each.group(3) for each in found if each}


def run(command, folder):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if process.returncode not in (0, 1):  # 1 where there are errors
        sys.exit("{} failed:\n{}{}".format(command[0], process.stdout, process.stderr))
    return process.stdout


def faults(checker, found, expected):
    """What a type checker says that it should not, and what it does not say."""
    said = ["{} objects to {}:{}: {}".format(checker, *place, found[place]) for place in sorted(set(found) - expected)]
    return said + ["{} does not object to {}:{}".format(checker, *place) for place in sorted(expected - set(found))]


def main():
    expected = set().union(*map(marked, FILES))
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            shutil.copy(os.path.join(HERE, name), folder)
        for checker, check in (("pyright", run_pyright), ("mypy", run_mypy)):
            found = check(folder)
            print("{}: {} errors, {} lines are marked".format(checker, len(found), len(expected)))
            for place, message in sorted(found.items()):
                print("  {}:{}: {}".format(place[0], place[1], message.splitlines()[0]))
            wrong += faults(checker, found, expected)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
