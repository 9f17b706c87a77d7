"""`everstep.capture`: takes the state of an optimizer."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.engine.step import counters
from everstep.compat.state.live import opened
from everstep.compat.state.state import State
from everstep.optimizers.contract.trees import flat


def capture(optimizer, variables, session=None, weights=False):
    """The state of a bound optimizer, copied.

    Args:
        optimizer: what `bind(module)` gave. One that has not trained yet has the state that it will start with.
        variables: the variables that it trains: a list, or {name: variable}. A list's names are those that the
            variables have, without `:0`; equal ones get `#0`, `#1`, in order. Arrays, which have none, are called by
            place. A partitioned variable, or the list of its parts, is one variable.
        session: where variables live in a graph, the session that has their values; the default one, or Keras's.
        weights: whether the values of the variables are taken, too.

    Raises:
        StateError: there is more to the optimizer than the state of these variables, or no value could be read.
        UnsupportedError: it is no bound optimizer.
    """
    with opened(optimizer, variables, session) as access:
        own = OrderedDict((name, access.read(variable)) for name, variable in access.own().items())
        counts = {name: int(own.get(name, 0)) for name in counters(optimizer.definition)}
        scalars = OrderedDict(
            (name, float(own.get(name, declaration.init)))
            for name, (_, declaration) in flat(optimizer.definition, "scalar").items()
        )
        slots, values = OrderedDict(), OrderedDict()
        for name, whole in access.wholes.items():
            slots[name] = OrderedDict((slot, access.read_slot(whole, slot)) for slot in whole.slot_names)
            if weights:
                values[name] = access.read_whole(whole)
        updates = counts["updates"] // optimizer.calls_per_update()
        return State(access.config(), updates, counts.get("steps"), counts.get("pending", 0), scalars, slots, values)
