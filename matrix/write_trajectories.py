"""Writes what the stock optimizers of this TensorFlow end with: tests/golden/tf_train_VERSION.json.

Run by hand, in the cells py27-tf1.4-k2.1 and py37-tf1.15-k2.3, with the package importable; the Python and NumPy of the
cell do. Optimizers, settings, start values and gradients are those of tests/test_migration.py, which reads the files:
`numpy.random.RandomState` gives the same numbers in every NumPy.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import platform
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))


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
    path = os.path.join(ROOT, "tests", "golden", "tf_train_{}.json".format(short))
    with io.open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(u"{}\n".format("\n".join(line.rstrip() for line in text.splitlines())))


if __name__ == "__main__":
    main()
