"""CPU time of a step, relative to the API's own optimizers: python -m benchmarks

Measures this checkout in each environment of `ENVIRONMENTS` that exists; --make creates the others first, with the
matrix. Prints a table with the targets, and writes benchmarks/results.json and the pictures. Compares the ratios with
those in benchmarks/record/baseline.json, and exits with 1 if one is more than a quarter worse. --new-baseline stores
the ratios, and writes docs/speed.md, docs/records/speed_tables.md and their pictures.

--only takes a measure of benchmarks/measures.py, or one with an API and a case: dense/tf_train/A.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from benchmarks import report
from benchmarks.measures import MEASURES, limits
from benchmarks.pictures import draw

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
ENVIRONMENTS = {  # the backend of Keras in each cell of the matrix that is measured
    "py37-tf1.15-k2.3": "tensorflow",
    "py39-tf2.10": "tensorflow",
    "py311-tf2.15": "tensorflow",
    "py313-tf2.21-tfk": "tensorflow",
    "py313-k3jax": "jax",
    "py311-k3torch": "torch",
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
    chosen = options.cell or list(ENVIRONMENTS)
    pythons = _pythons(chosen, options.environments)
    missing = [cell for cell in chosen if cell not in pythons]
    if missing and options.make:
        cells = [word for cell in missing for word in ("--cell", cell)]
        runner = os.path.join(ROOT, "matrix", "run.py")
        subprocess.run([sys.executable, runner, "--keep"] + cells + ["--", "--version"], check=False)
        pythons = _pythons(chosen, options.environments)
    if not pythons:
        sys.exit("none of the environments is there; --make makes them: " + ", ".join(missing))
    subprocess.run([sys.executable, os.path.join(ROOT, "matrix", "link_farm.py")], check=True)
    results, failed = [], []
    for cell, python in pythons.items():
        for result in _measured(cell, python, options):
            result = dict(result, cell=cell)
            if "failed" in result:
                failed.append("{} failed:\n{}".format(" ".join(_key(result)), result["failed"]))
                continue
            results.append(result)
            _print(result, header=len(results) == 1)
            _write(results)
    baseline = report.baseline()
    if options.new_baseline:
        kept = [each for each in baseline if _key(each) not in {_key(result) for result in results}]
        report.store(sorted(kept + results, key=_key))
        stored = report.baseline()
        report.write_pages(stored)
        draw(stored, report.DOCS)
    else:
        failed += _worse(results, {_key(each): each["ratios"] for each in baseline})
        draw(results, HERE)
    print("\n".join(failed))
    return bool(failed)


def _options():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="MEASURE", help="may be repeated")
    parser.add_argument("--cell", action="append", choices=ENVIRONMENTS, help="this environment alone; may be repeated")
    folder = os.path.join(ROOT, ".tox")
    parser.add_argument("--environments", default=folder, metavar="FOLDER", help="the folder that has them; .tox")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each measurement; 7")
    parser.add_argument("--make", action="store_true", help="make the environments that are not there")
    parser.add_argument("--new-baseline", action="store_true", help="store these ratios to compare later ones with")
    options = parser.parse_args()
    unknown = [name for name in options.only if not set(name.split("/")) & set(MEASURES)]
    if unknown:
        parser.error("no measure {}; there are {}".format(", ".join(unknown), ", ".join(MEASURES)))
    return options


def _pythons(cells, folder):
    """Returns {cell: path of its interpreter} of the environments that exist."""
    paths = {cell: os.path.join(folder, cell, "bin", "python") for cell in cells}
    return {cell: python for cell, python in paths.items() if os.path.exists(python)}


def _measured(cell, python, options):
    """Yields the results of an environment as they come."""
    command = [python, os.path.join(HERE, "worker.py"), "--rounds", str(options.rounds)]
    command += [word for name in options.only for word in ("--only", name)]
    path = os.pathsep.join([os.path.join(ROOT, ".dev"), _peers(cell, python, options.environments)])
    start, env = time.time(), dict(os.environ, PYTHONPATH=path, KERAS_BACKEND=ENVIRONMENTS[cell])
    env.setdefault("OMP_WAIT_POLICY", "passive")  # else torch's idle threads spin, which counts as CPU time
    with tempfile.TemporaryFile("w+") as errors:  # a full pipe would stop the worker
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as process:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        errors.seek(0)
        if process.returncode:
            ended = "it ended with {}:\n{}".format(process.returncode, errors.read()[-3000:])
            yield {"kind": "all", "target": "APIs", "case": "", "failed": ended}
    print("{}: {:.0f} s".format(cell, time.time() - start))


def _peers(cell, python, environments):
    """Returns the folder with a cell's PEERS. Installs them on first use."""
    folder = os.path.join(environments, "peers", cell)
    if cell in PEERS and not os.path.isdir(folder):
        os.makedirs(folder)  # also if it fails: do not try again each time
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", folder]
        if subprocess.run([python, "-m", "pip", "install"] + options + PEERS[cell], check=False).returncode:
            print("{}: without {}, which did not install".format(cell, ", ".join(PEERS[cell])))
    return folder


def _key(result):
    return result["cell"], result["kind"], result["target"], result["case"]


def _print(result, header):
    form = "{:17} {:10} {:18} {:24} {:18} {:>9} {:>6} {:>7} {:>7} {:>9} {:>7}"
    if header:
        heads = "environment", "measure", "API", "case", "optimizer", "ms a step", "ratio", "target", "first s"
        print(form.format(*heads + ("nodes/var", "B/param")))
    goals = limits(result)
    for label, seconds in result["seconds"].items():
        target, figure = goals.get(label, (None, None))
        figures = [
            "{:.3f}".format(1e3 * seconds),
            "{:.3g}".format(result["ratios"][label]),
            "" if not target else "{:g}{}".format(target.limit, " !" if figure > target.limit else ""),
            _known("{:.2f}", result["first"][label]),
            _known("{:.0f}", result["nodes"][label]),
            _known("{:.1f}", result["peak"][label]),
        ]
        print(form.format(*[result[key] for key in ("cell", "kind", "target", "case")] + [label] + figures), flush=True)


def _known(form, figure):
    return "-" if figure is None else form.format(figure)


def _worse(results, before):
    for result in results:
        for label, ratio in result["ratios"].items():
            old = before.get(_key(result), {}).get(label)
            if old is not None and label not in report.OTHERS and ratio > WORSE * old:
                yield "{} {}: {:.2f} of stock, and {:.2f} before".format(" ".join(_key(result)), label, ratio, old)


def _write(results):
    with open(os.path.join(HERE, "results.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(result, sort_keys=True) for result in results) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main())
