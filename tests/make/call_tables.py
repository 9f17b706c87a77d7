"""Writes how the calls of tests/calls.py end in each way of this environment, as a Markdown table.

    PYTHONPATH=.dev python tests/make/call_tables.py [TEXT]

With TEXT it runs only the calls with TEXT in their name, and prints both errors of each.
"""

from __future__ import absolute_import, division, print_function

import collections
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from call_worlds import judge, outcome  # noqa: E402
from calls import cells  # noqa: E402
from test_calls import difference, shown  # noqa: E402

WRONG = ("ours", "same", "taken", "foreign", "silent")
RIGHT = ("taken", "beyond", "refused", "differs")
BAD = ("foreign", "silent", "refused", "differs")


def main(text=""):
    counts, listed = collections.OrderedDict(), collections.OrderedDict()
    for call, way in cells():
        if text not in call.name:
            continue
        stock, ours = outcome(call, way, ours=False), outcome(call, way, ours=True)
        verdict = judge(call, stock, ours)
        counts.setdefault((way.name, call.right), collections.Counter())[verdict] += 1
        if verdict in BAD:
            reason = difference(call, way)
            reason = reason.reason if reason else "NO REASON"
            listed.setdefault((verdict, call.name, reason), []).append(way.name)
        if text:
            print(verdict, way.name, call.name, stock and shown(stock)[:300], shown(ours)[:300], sep=" | ")
    for is_right, verdicts in ((False, WRONG), (True, RIGHT)):
        print("\n| {} calls | all | {} |".format("right" if is_right else "wrong", " | ".join(verdicts)))
        print("|---|" + "---|" * (len(verdicts) + 1))
        for (name, right), count in counts.items():
            if right is is_right:
                # A right call that stock refuses in the same way is no difference.
                row = [count[verdict] for verdict in verdicts]
                print("| {} | {} | {} |".format(name, sum(count.values()), " | ".join(map(str, row))))
    print()
    for (verdict, name, reason), modes in listed.items():
        print("* {}: {} [{}] - {}".format(verdict, name, ", ".join(modes), reason))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(*sys.argv[1:])
