"""Installs the sdist and the wheel on every Python found: python3 matrix/install.py [FOLDER]

FOLDER has both, as `python -m build` leaves them in dist/. Each Python on PATH, in pyenv or uv that everstep supports
installs each, with what it depends on, into an empty folder. Then the commands run there, and Adam takes a step.
`.ci/package` calls this before a release.
"""
import glob
import os
import subprocess
import sys
import tempfile
import time

import cells

sys.path.insert(0, os.path.join(cells.ROOT, "examples"))

import demo  # noqa: E402  # finds Pythons

STEP = """
import json, os, subprocess, sys
import numpy, everstep
assert os.path.abspath(everstep.__file__).startswith(sys.argv[1]), everstep.__file__
weights = numpy.ones(3)
everstep.optimizers.Adam(0.5).bind(numpy).apply_gradients([(numpy.ones(3), weights)])
assert abs(weights - 0.5).max() < 1e-5, weights
command = [sys.executable, "-m", "everstep"]
facts = json.loads(subprocess.check_output(command + ["doctor", "--json"]).decode("utf-8"))
assert facts["everstep"] == everstep.__version__
assert b"beta_1" in subprocess.check_output(command + ["show", "adam"])
assert b"bias_correction=False" in subprocess.check_output(command + ["show", "bert"])
sys.stdout.write("everstep %s, numpy %s" % (everstep.__version__, numpy.__version__))
"""


def install(version, python, path):
    """Returns what the installed package says. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        environment = dict(demo.OLD if version in ("2.7", "3.6") else demo.CLEAN, PYTHONPATH=folder)

        def run(*arguments):
            return subprocess.run([python, *arguments], cwd=folder, env=environment, check=True, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout

        run("-m", "pip", "install", "-q", "--target", folder, path)
        return run("-W", "ignore", "-c", STEP, folder)


def main():
    dist = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(cells.ROOT, "dist"))
    packages = glob.glob(os.path.join(dist, "everstep-*.whl")) + glob.glob(os.path.join(dist, "everstep-*.tar.gz"))
    if len(packages) != 2:
        return "%s has %d of the two distributions: run python -m build" % (dist, len(packages))
    failed, pythons = [], demo.pythons()
    for version in sorted(pythons, key=lambda version: [int(part) for part in version.split(".")]):
        for path in packages:
            kind, start = "wheel" if path.endswith(".whl") else "sdist", time.time()
            try:
                said = install(version, pythons[version], path)
            except subprocess.CalledProcessError as error:
                said = "FAILED\n" + error.stderr[-2000:]
                failed.append("%s on %s" % (kind, version))
            print("Python %-4s  %s  %3d s  %s" % (version, kind, time.time() - start, said), flush=True)
    absent = sorted({cell.python for cell in cells.read().values()} - set(pythons))
    print("no such Python here: " + ", ".join(absent) if absent else "all Pythons of the matrix")
    return "failed: " + ", ".join(failed) if failed else 0


if __name__ == "__main__":
    sys.exit(main())
