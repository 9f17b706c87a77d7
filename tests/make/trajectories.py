"""Records the final weights of this TensorFlow's stock optimizers in tests/golden/tf_train_VERSION.json.

    python tests/make/trajectories.py [FOLDER]    # in py27-tf1.4-k2.1 and py37-tf1.15-k2.3; to tests/golden, or FOLDER

Optimizers, settings, start values and gradients come from tests/test_migration.py, which also reads the files.
`numpy.random.RandomState` gives the same numbers in every NumPy.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import platform
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in (os.path.join(os.path.dirname(TESTS), ".dev"), TESTS):
    sys.path.insert(0, folder)
GOLDEN = sys.argv[1] if sys.argv[1:] else os.path.join(TESTS, "golden")


def main():
    import numpy
    import tensorflow

    import test_migration

    way = next(way for way in test_migration.WAYS if way.target == "tf_train")
    cases = {}
    for name in sorted(test_migration.CASES):
        if not test_migration.known(name, way):
            continue
        cases[name] = {
            "definition": test_migration.definition_of(name, way).get_config(),
            "weights": {each: value.tolist() for each, value in test_migration.stock_weights(name, way).items()},
        }
    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "tensorflow": tensorflow.__version__}
    short = ".".join(tensorflow.__version__.split(".")[:2])
    text = json.dumps({"written by": versions, "cases": cases}, indent=1, sort_keys=True)
    path = os.path.join(GOLDEN, "tf_train_{}.json".format(short))
    with io.open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(u"{}\n".format("\n".join(line.rstrip() for line in text.splitlines())))


if __name__ == "__main__":
    main()
