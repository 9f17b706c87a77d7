"""CPU time of a step, relative to the API's own optimizers: python -m benchmarks [MEASURE ...]

Measures this checkout in each environment of `CELLS` that exists; --make creates the others first, with the matrix.
Prints a table, and writes benchmarks/results.json, ratios.png and rows.png. Compares the ratios with those in
benchmarks/baseline.json, and exits with 1 if one is more than a quarter worse. --new-baseline stores the ratios, and
writes the pictures to docs/.

A measure is dense, strategies, sparse, flat, lazy, eager or peers, or one of these with a target and a case:
dense/tf_train/A.
"""
import argparse
import json
import os
import subprocess
import sys
import time

from benchmarks import report

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
CELLS = {  # the script that measures in each cell
    "py37-tf1.15-k2.3": "worker.py",
    "py39-tf2.10": "worker.py",
    "py311-tf2.15": "worker.py",
    "py313-tf2.21-tfk": "worker.py",
    "py313-k3jax": "backends.py",
    "py311-k3torch": "backends.py",
}
PEERS = {  # packages with optimizers to compare with, installed beside a cell's environment
    "py37-tf1.15-k2.3": ["keras-adamw==1.38"],
    "py39-tf2.10": ["tensorflow-addons==0.19.0", "typeguard==2.13.3"],
    "py311-tf2.15": ["tensorflow-addons==0.23.0", "typeguard==2.13.3"],
    "py313-k3jax": ["optax==0.2.8"],
}
WORSE = 1.25  # a worse ratio is not noise


def main():
    options = _options()
    pythons = _pythons(options)
    missing = [cell for cell in options.cell or CELLS if cell not in pythons]
    if missing and options.make:
        cells = [word for cell in missing for word in ("--cell", cell)]
        runner = os.path.join(ROOT, "matrix", "run.py")
        subprocess.run([sys.executable, runner, "--keep"] + cells + ["--", "--version"], check=False)
        pythons = _pythons(options)
    if not pythons:
        sys.exit("none of the environments is there; --make makes them: " + ", ".join(missing))
    subprocess.run([sys.executable, os.path.join(ROOT, "matrix", "link_farm.py")], check=True)
    results = []
    for cell, python in pythons.items():
        for result in _measured(cell, python, options):
            results.append(dict(result, cell=cell))
            _print(results[-1], header=len(results) == 1)
            _write("results.json", results)
    baseline = _read("baseline.json")
    drawn, folder = results, HERE
    if options.new_baseline:
        kept = [each for each in baseline if _key(each) not in {_key(result) for result in results}]
        drawn, folder = sorted(kept + results, key=_key), os.path.join(ROOT, "docs")
        _write("baseline.json", drawn)
        report.write_tables(drawn)
        baseline = []
    worse = list(_worse(results, {_key(each): each["ratios"] for each in baseline}))
    print("\n".join(worse))
    report.draw(drawn, folder)
    return bool(worse)


def _options():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--cell", action="append", help="this environment alone; may be repeated")
    parser.add_argument(
        "--python", action="append", default=[], metavar="CELL=PATH", help="the interpreter of an environment elsewhere"
    )
    parser.add_argument("--make", action="store_true", help="make the environments that are not there")
    parser.add_argument("--new-baseline", action="store_true", help="store these ratios to compare later ones with")
    parser.add_argument("measures", nargs="*", metavar="MEASURE")
    return parser.parse_args()


def _pythons(options):
    """Returns {cell: path of its interpreter} of the environments that exist."""
    paths = {cell: os.path.join(ROOT, ".tox", cell, "bin", "python") for cell in CELLS}
    paths.update(given.split("=", 1) for given in options.python)
    chosen = options.cell or list(paths)
    return {cell: python for cell, python in paths.items() if cell in chosen and os.path.exists(python)}


def _measured(cell, python, options):
    command = [python, os.path.join(HERE, CELLS[cell])] + options.measures
    folders = [os.path.join(ROOT, ".dev"), _peers(cell, python)]
    start, env = time.time(), dict(os.environ, PYTHONPATH=os.pathsep.join(folders))
    if CELLS[cell] == "backends.py":
        env["KERAS_BACKEND"] = cell.split("k3")[1]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, universal_newlines=True, env=env) as process:
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        errors = process.stderr.read()
    if process.returncode:
        sys.exit("{} ended with {}:\n{}".format(cell, process.returncode, errors[-3000:]))
    print("{}: {:.0f} s".format(cell, time.time() - start))


def _peers(cell, python):
    """Returns the folder with a cell's PEERS. Installs them on first use."""
    folder = os.path.join(ROOT, ".tox", "peers", cell)
    if cell in PEERS and not os.path.isdir(folder):
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", folder]
        if subprocess.run([python, "-m", "pip", "install"] + options + PEERS[cell], check=False).returncode:
            print("{}: without {}, which did not install".format(cell, ", ".join(PEERS[cell])))
    return folder


def _key(result):
    return result["cell"], result["kind"], result["target"], result["case"]


def _print(result, header):
    form = "{:17} {:6} {:18} {:13} {:18} {:>9} {:>6} {:>7} {:>9} {:>7}"
    if header:
        heads = "environment", "", "target", "case", "optimizer", "ms a step", "ratio", "first s", "nodes/var"
        print(form.format(*heads + ("B/param",)))
    for label, seconds in result["seconds"].items():
        print(
            form.format(
                result["cell"],
                result["kind"],
                result["target"],
                result["case"],
                label,
                "{:.3f}".format(1e3 * seconds),
                "{:.3g}".format(result["ratios"][label]),
                "{:.2f}".format(result["first"][label]),
                "-" if result["nodes"][label] is None else "{:.0f}".format(result["nodes"][label]),
                "-" if result["peak"][label] is None else "{:.1f}".format(result["peak"][label]),
            ),
            flush=True,
        )


def _worse(results, before):
    for result in results:
        for label, ratio in result["ratios"].items():
            old = before.get(_key(result), {}).get(label)
            if old is not None and label != "native" and ratio > WORSE * old:
                yield "{} {}: {:.2f} of native, and {:.2f} before".format(" ".join(_key(result)), label, ratio, old)


def _read(name):
    path = os.path.join(HERE, name)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _write(name, results):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(result, sort_keys=True) for result in results) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main())
