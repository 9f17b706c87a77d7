"""Installs the sdist and the wheel on every Python found: python3 matrix/install.py [FOLDER] [--beside PYTHON...]

FOLDER has both, as `python -m build` leaves them in dist/. Each Python on PATH, in pyenv or uv that everstep supports
installs each, with what it depends on, into an empty folder; no checkout is on its path. Then the commands run there,
Adam takes a step, and every example of the package's docstrings runs. `--beside` names Pythons of environments that
have a framework: the wheel alone goes beside it, and Adam trains on each API there. Prints a table, and exits with 1 if
anything failed. `.ci/package` calls this before a release.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

import cells

sys.path.insert(0, os.path.join(cells.ROOT, "examples"))

import demo  # noqa: E402  # finds Pythons

CHECK = """
import doctest, importlib, json, os, pkgutil, subprocess, sys
import numpy, everstep
root = os.path.dirname(os.path.abspath(everstep.__file__))
assert root.startswith(sys.argv[1]), root
assert not [path for path in sys.path if os.path.exists(os.path.join(path or ".", "setup.cfg"))], sys.path
weights = numpy.ones(3)
everstep.optimizers.Adam(0.5).bind(numpy).apply_gradients([(numpy.ones(3), weights)])
assert abs(weights - 0.5).max() < 1e-5, weights
def everstep_says(*words):
    return subprocess.check_output([sys.executable, "-m", "everstep"] + list(words)).decode("utf-8")
assert everstep_says("version").split()[-1] == everstep.__version__
assert json.loads(everstep_says("doctor", "--json"))["everstep"] == everstep.__version__
assert "beta_1" in everstep_says("show", "adam") and "bias_correction=False" in everstep_says("show", "bert")
files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if name.endswith(".py")]
examples = 0
for path in files:
    with open(path, "rb") as file:
        if b">>>" not in file.read():
            continue
    module = os.path.relpath(path, os.path.dirname(root))[:-3].replace(os.sep, ".").replace(".__init__", "")
    failed, tried = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert tried and not failed, module
    examples += tried
facts = {"everstep": everstep.__version__, "numpy": numpy.__version__, "says": "%d examples" % examples}
sys.stdout.write(json.dumps(facts))
"""
BESIDE = """
import json, os, sys
import numpy, everstep
from everstep.compat.ways.known import all_ways
from everstep.testing import training
assert os.path.abspath(everstep.__file__).startswith(sys.argv[1]), everstep.__file__
start, trained = {"weights": numpy.ones(3, "float32")}, []
for way in all_ways():
    adam = lambda **params: training.bound(everstep.optimizers.Adam(0.5), way.module, **params)
    run = way.run(adam, start, {"weights": "dense"})
    run.step({"weights": numpy.ones(3, "float32")})
    assert abs(run.weights()["weights"] - 0.5).max() < 1e-5, way.name
    run.close()
    trained.append(way.name)
facts = {"everstep": everstep.__version__, "numpy": numpy.__version__, "says": ", ".join(trained)}
sys.stdout.write("\\n" + json.dumps(facts))
"""


def install(version, python, path, check, options):
    """Returns {what: text} of what the installed package says. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        environment = dict(demo.OLD if version in ("2.7", "3.6") else demo.CLEAN, PYTHONPATH=folder)
        environment.update({name: os.environ[name] for name in ("KERAS_BACKEND",) if name in os.environ})

        def run(*arguments):
            return subprocess.run([python, *arguments], cwd=folder, env=environment, check=True, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout

        run("-m", "pip", "install", "-q", "--target", folder, *options, path)
        return json.loads(run("-W", "ignore", "-c", check, folder).splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=os.path.join(cells.ROOT, "dist"))
    parser.add_argument("--beside", nargs="+", default=[], metavar="PYTHON")
    arguments = parser.parse_args()
    dist = os.path.abspath(arguments.folder)
    packages = glob.glob(os.path.join(dist, "everstep-*.whl")) + glob.glob(os.path.join(dist, "everstep-*.tar.gz"))
    if len(packages) != 2:
        return "%s has %d of the two distributions: run python -m build" % (dist, len(packages))
    pythons = demo.pythons()
    todo = [(version, pythons[version], path, CHECK, ())
            for version in sorted(pythons, key=lambda version: [int(part) for part in version.split(".")])
            for path in packages]
    for python in arguments.beside:
        version = subprocess.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], check=True,
                                 text=True, stdout=subprocess.PIPE).stdout.strip()
        todo.append((version, os.path.abspath(python), packages[0], BESIDE, ("--no-deps",)))
    failed, row = [], "%-6s  %-5s  %7s  %-9s  %-7s  %s"
    print(row % ("PYTHON", "FROM", "SECONDS", "EVERSTEP", "NUMPY", "WHAT RAN"), flush=True)
    for version, python, path, check, options in todo:
        kind, start = "wheel" if path.endswith(".whl") else "sdist", time.time()
        try:
            said = install(version, python, path, check, options)
        except subprocess.CalledProcessError as error:
            said = {"everstep": "", "numpy": "", "says": "FAILED\n" + (error.stdout + error.stderr)[-2000:]}
            failed.append("%s on %s" % (kind, python))
        print(row % (version, kind, "%.0f" % (time.time() - start), said["everstep"], said["numpy"], said["says"]),
              flush=True)
    absent = sorted({cell.python for cell in cells.read().values()} - set(pythons))
    print("no such Python here: " + ", ".join(absent) if absent else "all Pythons of the matrix")
    return "failed: " + ", ".join(failed) if failed else 0


if __name__ == "__main__":
    sys.exit(main())
