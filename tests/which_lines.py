"""A plugin of pytest for tests/mutate.py: finds which test runs which line of shipped code, and how long it takes.

It writes {file of tests: {"seconds": {test that passed: seconds}, "lines": {file: {line: [test]}}}} as JSON. Seconds
are those of the processor, so that other programs that run do not matter. Works on Python 3.7 and newer.
"""
import collections
import json
import os

import coverage

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOMS = [os.path.join(ROOT, room, "*") for room in ("api", "compat", "optimizers")]

measured = coverage.Coverage(data_file=None, include=ROOMS, config_file=False)
seconds, failed = collections.Counter(), set()


def pytest_configure():
    measured.start()


def pytest_runtest_logstart(nodeid):
    measured.switch_context(nodeid)
    seconds[nodeid] -= sum(os.times()[:4])


def pytest_runtest_logfinish(nodeid):
    measured.switch_context("")
    seconds[nodeid] += sum(os.times()[:4])


def pytest_runtest_logreport(report):
    if not report.passed or "::test_zz_" in report.nodeid:  # those report what other tests found
        failed.add(report.nodeid)


def pytest_sessionfinish():
    measured.stop()
    data = measured.get_data()
    found = collections.defaultdict(lambda: {"seconds": {}, "lines": collections.defaultdict(dict)})
    for test in set(seconds) - failed:
        found[test.split("::")[0]]["seconds"][test] = seconds[test]
    for path in data.measured_files():
        name = os.path.relpath(os.path.realpath(path), ROOT)
        for line, contexts in data.contexts_by_lineno(path).items():
            for test in set(contexts) - failed - {""}:
                found[test.split("::")[0]]["lines"][name].setdefault(line, []).append(test)
    with open(os.environ["WHICH_LINES"], "w") as file:
        json.dump(found, file)
