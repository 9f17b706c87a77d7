"""Sums over the updates that a row missed, read at a cost that does not depend on how many they were.

All rows of a step are brought to the same update, so whatever depends on time alone is a table with an entry for each
update that rows may have been left at. `fast_forward` asks for sums over the missed updates; tracing it once finds the
columns that the table needs. A step adds itself to the table, and a row reads one entry.

Worked example: momentum 0.5, learning rate 0.1, no gradient. After update 4 a row has m = 8; three updates later it is
needed again. One by one, m becomes 4, 2 and 1, and the row moves by 0.1 * (4 + 2 + 1) = 0.7. The table keeps the log of
the product of the momenta so far: -2.773 at update 4 (0.5^4), -4.852 at update 7. The row reads both: the momentum that
is left is exp(-4.852 + 2.773) = 0.125, so m = 8 * 0.125 = 1. It also keeps, at update 4, the sum of the later updates'
terms, rate * product: 0.1 * (0.5 + 0.25 + 0.125) = 0.0875, and 8 * 0.0875 = 0.7. A row that missed 3,000 updates reads
the same two numbers.

| column | at update `left`, with all until now   | what a step costs       | what it is for                          |
|--------|----------------------------------------|-------------------------|-----------------------------------------|
| log    | log of the product until `left`        | one number              | `product` and `decay`, as differences   |
| last   | the value at `left`                    | one number              | hypers read outside of a sum            |
| first  | a value at the update after `left`     | one number              | the scale of epsilon in `quotient`      |
| slow   | a sum until `left`, as it decays       | one number              | `sum` of terms without a product        |
| end    | the log of a decay until now, or until | `window` numbers        | sums that decay after their terms ended |
|        | the terms of `left` ended              |                         |                                         |
| fast   | the sum of the terms after `left`      | `window` numbers        | `sum` and `quotient`, whose terms fade  |

Entries of the last `recent` updates are kept one by one, and those of the first FIRST, in which bias corrections change
fast. Of the others each block of BLOCK keeps its last entry, between which entries are interpolated. Rows left before
the last BLOCKS blocks use the oldest; products and slow sums are then extended by the mean of one update.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.engine.curves import curve_terms, faded_after
from everstep.compat.engine.missed_steps import WIDE, MissedSteps, TableInterpreter, leaves_of
from everstep.compat.rules.expressions import Tracer, Value, equal
from everstep.errors import RuleError
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign
from everstep.optimizers.contract.trees import Names, flat, flatten, tree

RECENT, FIRST = 4096, 512  # the fewest of the last updates, and the first ones, whose entries are kept one by one
BLOCKS, BLOCK = 1024, 64  # blocks, and the updates in each; FIRST is a multiple of BLOCK


class Columns(object):
    """The columns of one rule's table, found by tracing its `fast_forward`.

    Args:
        rule: the definition, `without_grad`.
        dtype: the compute dtype.
        rank: the rank of the variables.
    """

    def __init__(self, rule, dtype, rank):
        self.rule, self.dtype, self.rank = rule, dtype, rank
        self.tracer = Tracer(dtype)
        self._leaves = 0  # how many leaves are named by a number
        self.count = self._leaf()  # the number of missed updates
        self.var = self.tracer.leaf(("var", None), shape=(None,) * rank)
        self.slots = OrderedDict((name, self._leaf()) for name in flat(rule, "slot"))
        self.t = self.tracer.count_leaf(("t", None))
        self.per_step = {name: self._leaf() for kind in ("hyper", "scalar") for name in flat(rule, kind)}
        # columns of logarithms: (factor or 1 - factor, which of both); their leaves
        self.factors, self.products, self.losses = [], [], []
        self.firsts = []  # (value, leaf)
        self.slow, self.fast = [], []  # (term, decays, log column or None, leaf); (terms, curve, decays, leaves)
        self.window = 0  # over how many updates fast sums extend
        self.needs_rest = False  # whether the form holds only once the row has come to rest
        with running_rule():
            hypers = dict(self.per_step, pending=self.tracer.constant(1.0), updates=self.t - 1)
            names = Names(tree(rule), self.slots), Names(tree(rule), hypers, ("pending", "updates"))
            change, new = rule.fast_forward(self.tracer, self.var, names[0], names[1], MissedSteps(self))
        self.assigned = isinstance(change, assign)
        self.change = self.tracer.as_value(change.value if self.assigned else change)
        self.new = flatten(rule, "slot", new, "fast_forward")
        self.new = OrderedDict((name, self.tracer.as_value(value)) for name, value in self.new.items())
        self._lay_out()

    def _leaf(self):
        self._leaves += 1
        return self.tracer.leaf(("leaf", self._leaves))

    # What `Missed` asks for.

    def _log_column(self, value, is_share):
        """Returns the index of the log column of a factor, or of 1 - share."""
        value = self.tracer.as_value(value)
        self._check(value, "a product")
        for index, (other, other_is_share) in enumerate(self.factors):
            if other_is_share == is_share and equal(other, value):
                return index
        self.factors.append((value, is_share))
        self.products.append(self._leaf())
        self.losses.append(self._leaf())
        return len(self.factors) - 1

    def product(self, factor):
        return self.products[self._log_column(factor, False)]

    def lost(self, share):
        return self.losses[self._log_column(share, True)]

    def has_products(self, term):
        running = set(self.products + [self.count])
        return isinstance(term, Value) and any(leaf in running for leaf in leaves_of(term))

    def slow_sum(self, term, decays, share=None):
        """Adds a sum of terms, each multiplied by the product of 1 - share before it. Returns its leaf."""
        term, leaf = self.tracer.as_value(term), self._leaf()
        self._check(term, "the term of a sum")
        self.slow.append((term, self._indices(decays), None if share is None else self._log_column(share, True), leaf))
        return leaf

    def first_value(self, value):
        """Returns the leaf of a value at the first missed update."""
        self._check(value, "the scale of a quotient")
        for other, leaf in self.firsts:
            if equal(other, value):
                return leaf
        self.firsts.append((value, self._leaf()))
        return self.firsts[-1][1]

    def fast_sum(self, terms, curve, decays, fade):
        """Adds a sum of terms with products, or the sums of a curve's coefficients. Returns its leaves."""
        terms = [self.tracer.as_value(term) for term in terms]
        for term in terms:
            also = self.products + [self.count] + [leaf for _, leaf in self.firsts]
            self._check(term, "the term of a sum", also)
        leaves = [self._leaf() for _ in range(len(curve.inverse) if curve else 1)]
        self.fast.append((terms, curve, self._indices(decays), leaves))
        self.window = max(self.window, faded_after(fade))
        return leaves

    def _indices(self, decays):
        """Returns ((index of a decay's log column, whether after the term is added), ...)."""
        return tuple((self._log_column(share, True), after) for share, after in decays)

    def _check(self, value, what, also=()):
        allowed = set([self.t.exact.integer] + list(self.per_step.values()) + list(also))
        if any(leaf not in allowed for leaf in leaves_of(value)):
            raise RuleError(
                "{}.fast_forward: {} can hold hypers, scalars, hyper.updates and numbers{}. It is one number for all "
                "rows that missed the same updates".format(
                    type(self.rule).__name__, what, ", and products of missed updates" if also else ""
                )
            )

    def number(self, value):
        """Returns the number that a value of hypers has at first; None if one is not given as a number."""
        if not isinstance(value, Value):
            return value
        given = {}
        for name, (owner, declaration) in flat(self.rule, "hyper").items():
            given[self.per_step[name]] = owner._values[declaration.name]
        leaves = [given.get(leaf) for leaf in leaves_of(value)]
        if not all(isinstance(number, float) for number in leaves):
            return None
        natives = {key: np.float64(number) for key, number in given.items() if isinstance(number, float)}
        return float(self._computed(NumpyBackend(), value, natives))

    # The layout.

    def _lay_out(self):
        read = set()
        for value in [self.change] + list(self.new.values()):
            read.update(leaves_of(value))
        self.last = [name for name, leaf in self.per_step.items() if leaf in read]
        self.last_count = self.t.exact.integer in read
        self.ends = []  # the decays of fast sums, each once
        for _, _, decays, _ in self.fast:
            if decays and decays not in self.ends:
                self.ends.append(decays)
        widths = [
            len(self.factors), len(self.last) + self.last_count, len(self.slow), len(self.firsts), len(self.ends),
            sum(len(leaves) for _, _, _, leaves in self.fast),
        ]
        edges = np.cumsum([0] + widths)
        self.places = dict(zip(("log", "last", "slow", "first", "end", "fast"), zip(edges, edges[1:])))
        self.width = int(edges[-1])
        self.recent = max(RECENT, self.window + 1)

    @property
    def shape(self):
        """The shape of the table."""
        return self.recent + BLOCKS + FIRST, self.width

    @property
    def reach(self):
        """How many updates the table goes back."""
        return self.recent + (BLOCKS - 1) * BLOCK

    def names(self):
        """Returns the flat names of the hypers and scalars that a step adds to the table."""
        values = [value for value, _ in self.factors] + [term for term, _, _, _ in self.slow]
        values += [value for value, _ in self.firsts] + [term for terms, _, _, _ in self.fast for term in terms]
        read = {leaf for value in values for leaf in leaves_of(value)}
        return [name for name, leaf in self.per_step.items() if leaf in read or name in self.last]

    # Computing.

    def _computed(self, backend, value, natives):
        """Returns a value's native value. `natives` has those of the leaves, by id, and gets all others."""
        return TableInterpreter(backend, natives, self.dtype).lower(value)

    def _wide(self, backend, value, natives):
        return backend.cast(self._computed(backend, value, natives), WIDE)

    def _wide_factor(self, backend, index, natives):
        """Returns a log column's factor, at least 1e-300. 1 - share is more exact than the compute dtype."""
        value, is_share = self.factors[index]
        native = self._wide(backend, value, natives)
        return backend.ops["maximum"](1 - native if is_share else native, 1e-300)

    def values(self, backend, table, left, updates, start):
        """Returns [the variable, each slot] after the missed updates.

        Args:
            table: the native variable of the table.
            left: the updates that each row has taken, int64 of shape (n, 1, ...).
            updates: the updates that there were, an int64.
            start: the values [of the variable, of each slot] before, in the compute dtype.
        """
        ops = backend.ops
        natives = {self.var: start[0]}
        natives.update((leaf, value) for leaf, value in zip(self.slots.values(), start[1:]))
        flat_left = ops["reshape"](left, (-1,))
        natives[self.count] = backend.cast(updates - left, self.dtype)
        if self.width:
            before, after, share, ratio = self._places(backend, flat_left, updates)
            entry = self._between(backend, backend.gather(table, before), backend.gather(table, after), share)
            now = backend.gather(table, self._place_now(backend, updates))
            self._read(backend, entry, now, ops["reshape"](ratio, (-1, 1)), natives)
        change = self._computed(backend, self.change, natives)
        results = [change if self.assigned else start[0] - change]
        for name, old in zip(self.slots, start[1:]):
            results.append(self._computed(backend, self.new[name], natives) if name in self.new else old)
        return [backend.cast(new, self.dtype) + ops["zeros_like"](old) if backend.shape(new) != backend.shape(old)
                else backend.cast(new, self.dtype) for new, old in zip(results, start)]

    def _place_now(self, backend, updates):
        return backend.ops["reshape"](backend.ops["remainder"](updates, self.recent), (1,))

    def _place_of_old(self, backend, update):
        """Returns the place of the entry of an update before the recent ones, if it is kept."""
        ops = backend.ops
        in_block = self.recent + ops["remainder"](ops["floor_divide"](update, BLOCK), BLOCKS)
        is_first = ops["less"](update, FIRST)
        return _select(backend, is_first, self.recent + BLOCKS + ops["maximum"](update, 0), in_block)

    def _places(self, backend, left, updates):
        """Returns which entries each row reads: (place before, place after, share of the one before, ratio).

        The ratio is how many updates the row missed, by how many the entries are away.
        """
        ops = backend.ops
        oldest = updates - self.recent  # the newest update that is not recent
        is_recent = ops["greater"](left, oldest)
        alone = ops["logical_or"](is_recent, ops["less"](left, FIRST))
        block, first_block = ops["floor_divide"](left, BLOCK), ops["floor_divide"](oldest, BLOCK) - (BLOCKS - 1)
        before = block * BLOCK - 1
        after = ops["minimum"](ops["maximum"](block, first_block) * BLOCK + (BLOCK - 1), oldest)
        after = _select(backend, alone, left, after)
        has_before = ops["logical_or"](ops["less"](before, FIRST), ops["greater"](block, first_block))
        before = _select(backend, has_before, before, after)
        distance = backend.cast(ops["maximum"](after - before, 1), WIDE)
        share = backend.cast(ops["maximum"](after - left, 0), WIDE) / distance  # 0 if alone
        since = ops["maximum"](updates - ops["maximum"](before, left), 1)
        ratio = backend.cast(updates - left, WIDE) / backend.cast(since, WIDE)
        before = self._place_of_old(backend, before)
        after = _select(backend, is_recent, ops["remainder"](left, self.recent), self._place_of_old(backend, after))
        return before, after, share, ratio

    def _between(self, backend, before, after, share):
        """Returns the interpolated entries of rows. Sums with decays are linear in what the decays leave."""
        ops, share = backend.ops, backend.ops["reshape"](share, (-1, 1))
        entry = after + share * (before - after)
        if not any(decays for _, decays, _, _ in self.slow):
            return entry
        first, end = self.places["slow"]
        columns = [entry[:, :first]]
        for place, (_, decays, _, _) in enumerate(self.slow, first):
            column = entry[:, place : place + 1]
            if decays:
                gone = ops["exp"](self._log(after, decays) - self._log(before, decays)) - 1
                gone_before = ops["exp"](self._log(entry, decays) - self._log(before, decays)) - 1
                is_decayed = ops["less"](gone, ops["zeros_like"](gone))
                part = _select(backend, is_decayed, gone_before, 1 - share)
                kept = 1 - part / _select(backend, is_decayed, gone, 1.0)
                old, new = before[:, place : place + 1], after[:, place : place + 1]
                column = new + kept * (old - new)
            columns.append(column)
        return backend.concat(columns + [entry[:, end:]], 1)

    def _read(self, backend, entry, now, ratio, natives):
        """Adds the native values of all columns' leaves for some rows."""
        ops, columns, leaves = backend.ops, [], []
        part = lambda table, kind: table[:, self.places[kind][0] : self.places[kind][1]]  # noqa: E731
        if self.factors:
            products = ops["exp"]((part(now, "log") - part(entry, "log")) * ratio)
            columns += [products, 1 - products]
            leaves += self.products + self.losses
        if self.last:
            last = backend.cast(now[0, slice(*self.places["last"])], self.dtype)
            natives.update((self.per_step[name], last[place]) for place, name in enumerate(self.last))
        if self.slow:
            columns += [self._slow_sum(backend, entry, now, ratio, place) for place in range(len(self.slow))]
            leaves += [leaf for _, _, _, leaf in self.slow]
        if self.firsts:
            columns.append(part(entry, "first"))
            leaves += [leaf for _, leaf in self.firsts]
        first = self.places["fast"][0]
        for _, _, decays, sums in self.fast:
            sum_columns = entry[:, first : first + len(sums)]
            if decays:
                end, until_now = self.places["end"][0] + self.ends.index(decays), self._log(now, decays)
                extended = until_now + (ratio - 1) * (until_now - self._log(entry, decays))
                sum_columns = sum_columns * ops["exp"](extended - entry[:, end : end + 1])
            columns.append(sum_columns)
            leaves += sums
            first += len(sums)
        if columns:
            all_columns = backend.cast(backend.concat(columns, 1), self.dtype)
            shape = (-1,) + (1,) * (self.rank - 1)
            for place, leaf in enumerate(leaves):
                column = all_columns[:, place : place + 1]
                natives[leaf] = column if self.rank == 2 else ops["reshape"](column, shape)
        if self.last_count:
            natives[self.t.exact.integer] = backend.cast(now[0, self.places["last"][1] - 1], "int64")

    @staticmethod
    def _log(table, decays):
        """Returns the log of what is left by some decays until the table's entries."""
        return sum(table[:, index : index + 1] for index, _ in decays)

    def _slow_sum(self, backend, entry, now, ratio, place):
        ops, (_, decays, factor, _) = backend.ops, self.slow[place]
        first = self.places["slow"][0] + place
        before, after = entry[:, first : first + 1], now[:, first : first + 1]
        left = ops["exp"](self._log(now, decays) - self._log(entry, decays)) if decays else 1 + 0 * ratio
        if factor is not None:
            after = after * ops["exp"](now[:, factor : factor + 1] - entry[:, factor : factor + 1])
        extended = ratio
        if decays:
            gone = 1 - left
            is_decayed = ops["greater"](gone, 0)
            extended = (1 - left**ratio) / _select(backend, is_decayed, gone, 1.0)
            extended = _select(backend, is_decayed, extended, ratio)
        return (after - before * left) * extended

    def recorded(self, backend, table, updates, step):
        """Returns (places, entries) to write for an update, after which there are `updates` + 1.

        Args:
            step: `{flat name, or "t": native value}` of this update; t is an integer.
        """
        ops = backend.ops
        natives = {self.per_step[name]: step[name] for name in self.names()}
        natives[self.t.exact.integer] = step["t"]
        now = backend.gather(table, self._place_now(backend, updates))
        after = ops["reshape"](updates + 1, (1,))
        new_place = ops["remainder"](after, self.recent)
        falls_out = backend.gather(table, new_place)  # the oldest of the recent entries
        places, entries = [self._place_of_old(backend, after - self.recent), new_place], [falls_out]
        logs = now[:, slice(*self.places["log"])]
        if self.factors:
            factors = [self._wide_factor(backend, index, natives) for index in range(len(self.factors))]
            logs = logs + ops["reshape"](ops["log"](backend.stack(factors)), (1, -1))
        entries.append(self._new_entry(backend, now, logs, natives, step))
        if self.fast:
            places.append(ops["remainder"](updates - backend.cast(backend.iota(self.window), "int64"), self.recent))
            entries.append(self._with_terms(backend, backend.gather(table, places[-1]), logs, natives))
        return backend.concat(places, 0), backend.concat(entries, 0)

    def _new_entry(self, backend, now, logs, natives, step):
        """Returns the entry of the update itself, of shape (1, width)."""
        ops, columns = backend.ops, [logs]
        numbers = [step[name] for name in self.last] + [step["t"]] * self.last_count
        scalars = [backend.cast(number, WIDE) for number in numbers]
        for place, (term, decays, factor, _) in enumerate(self.slow):
            kept, share = 1.0, 1.0
            for index, after in decays:
                survives = self._wide_factor(backend, index, natives)
                kept, share = kept * survives, share * survives if after else share
            if factor is not None:
                before = self._wide_factor(backend, factor, natives)
                kept, share = kept / before, share / before
            old = now[0, self.places["slow"][0] + place]
            scalars.append(kept * old + share * self._wide(backend, term, natives))
        if scalars:
            columns.append(ops["reshape"](backend.stack(scalars), (1, -1)))
        if self.firsts:
            columns.append(backend.constant(np.zeros((1, len(self.firsts))), WIDE))
        columns += [self._log(logs, decays) for decays in self.ends]
        first, end = self.places["fast"]
        if self.fast:
            columns.append(backend.constant(np.zeros((1, end - first)), WIDE))
        return backend.concat(columns, 1)

    def _with_terms(self, backend, entries, logs, natives):
        """Returns the entries within the window with the terms of this update, of shape (window, width)."""
        ops, natives = backend.ops, dict(natives)
        running = ops["exp"](logs - entries[:, slice(*self.places["log"])])
        natives.update((leaf, running[:, index : index + 1]) for index, leaf in enumerate(self.products))
        ages = np.arange(1.0, self.window + 1).reshape((-1, 1))
        natives[self.count] = backend.constant(ages, WIDE)
        zeros = backend.constant(0 * ages, WIDE)
        columns, first = [entries[:, : self.places["first"][0]]], self.places["fast"][0]
        for place, (value, leaf) in enumerate(self.firsts, self.places["first"][0]):
            now = ops["reshape"](self._wide(backend, value, natives), (1, 1))
            columns.append(backend.concat([now, entries[1:, place : place + 1]], 0))
            natives[leaf] = ops["maximum"](columns[-1], 1e-30)
        columns += [self._log(logs, decays) + zeros for decays in self.ends]
        for terms, curve, decays, leaves in self.fast:
            values = [self._wide(backend, term, natives) + zeros for term in terms]
            value = curve_terms(backend, values, curve) if curve else values[0]
            old = entries[:, first : first + len(leaves)]
            for index, after in decays:
                survives = self._wide_factor(backend, index, natives)
                old, value = old * survives, value * survives if after else value
            columns.append(old + value)
            first += len(leaves)
        return backend.concat(columns, 1)


def _select(backend, condition, yes, no):
    """Returns `yes` where a condition holds, else `no`: finite numbers. It takes a quarter of `where`'s operations."""
    return no + backend.cast(condition, backend.dtype(yes)) * (yes - no)
