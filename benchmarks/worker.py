"""Takes the measurements of `python -m benchmarks` in one environment, and prints a line of JSON for each.

    KERAS_BACKEND=tensorflow python worker.py --rounds 7 --only MEASURE ...
"""
import argparse
import json
import os
import sys
import traceback

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from apis import apis  # noqa: E402  # after the frameworks' settings
from measures import MEASURES, cases, selected  # noqa: E402
from timing import ROUNDS, interleaved, temporaries  # noqa: E402


def figures(case, rounds=ROUNDS):
    """Returns what is measured of a case."""
    runs = case.runs()
    parameters = sum(int(np.prod(shape)) for shape in next(iter(runs.values())).shapes)
    seconds, ratios = interleaved(runs, rounds)
    peak = {label: temporaries(run) if run.warm else None for label, run in runs.items()}
    return {
        "case": case.name,
        "beside": case.beside,
        "seconds": seconds,
        "ratios": ratios,
        "peak": {label: None if size is None else size / parameters for label, size in peak.items()},
        "first": {label: run.first for label, run in runs.items()},
        "nodes": {label: run.nodes for label, run in runs.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    for api in apis():
        api.run(api.adam, [(2,)])  # keep one-time work of the process out of all first steps
        for name in MEASURES:
            for case in cases(name, api):
                if selected(options.only, name, api.name, case.name):
                    try:
                        line = figures(case, options.rounds)
                    except Exception:  # the other cases still count
                        line = {"case": case.name, "failed": traceback.format_exc()}
                    print(json.dumps(dict(line, kind=name, target=api.name)))
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
