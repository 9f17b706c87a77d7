"""What the engine asks of a backend, and the names of the ops that rules use."""
from __future__ import absolute_import, division, print_function

import contextlib

from everstep.errors import UnknownOpError

# What a rule may use, with NumPy's names and meaning, on every backend.
NAMES = frozenset(
    "abs sqrt rsqrt square exp log pow sin cos sign floor maximum minimum clip where equal isfinite logical_and "
    "logical_or logical_not sum mean max min any all cast sigmoid tanh zeros_like ones_like reshape".split()
)


def unknown_op(name):
    return UnknownOpError("ops has no {!r}; it has: {}".format(name, ", ".join(sorted(NAMES))))


class WithoutGraphs(object):
    """What capture, restore and compat/engine/lowering.py ask of a backend, where values are there without a session.

    `value(variable, session)` is a variable's value as an array, `put(variable, value, session)` gives it another.
    """

    @contextlib.contextmanager
    def inside(self, variables):
        """In the graph that variables live in."""
        yield

    def session_for(self, variables, session, default):
        """The session that has the values of variables."""

    def start(self, variables, session):
        """Gives variables that were just made their first values."""

    def lowers(self, way):
        """Whether there is such a way here at all; see compat/engine/lowering.py."""
        return False

    def without_strategy(self):
        return True

    def replica(self):
        """The number of the replica that this runs in; 0 where there is one."""
        return 0

    def local(self, value):
        """Of what there is one of in each replica, the first."""
        return value
