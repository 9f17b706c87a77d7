"""`Claim`: one interpretation of what a file holds. Nothing writes into what it interprets."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.errors import FileError, StateError

# What the user says of a file. optimizer: a text, of which `identify.parsed` makes a Named.
Request = namedtuple("Request", "definition optimizer updates learning_rate variables slots scope")
Request.__new__.__defaults__ = (None,) * len(Request._fields)


class Claim(namedtuple(
    "Claim", "contents target class_name config scaling loss_scale copies entries slots values powers variables shapes "
    "definition entry branches scope counted notes missing unused"
)):
    """One interpretation of a file: which of its arrays are an optimizer's state, and of what.

    A reader begins with what the file says by itself; a definition then settles which slot each array is.

    Attributes:
        contents: the Contents.
        target: the optimizer API (a name in compat/targets/detect.py); None if the file does not say.
        class_name, config: the optimizer's; None if the file has none.
        scaling: the config of the LossScaleOptimizer around the optimizer; None if there is none or no config.
        loss_scale: {"scale": handle, "good_steps": handle} of a LossScaleOptimizer, if the file has them.
        copies: {name of an array: name of a second copy of it}.
        entries: [(name or "", handle)], the optimizer's variables by position.
        slots: {variable: {slot: handle}}: names on disk at first, the definition's once there is one.
        values: {name: handle}, the numbers of the optimizer as a whole: counters, scalars and hypers.
        powers: {name in the file: {"beta1_power": handle, "beta2_power": handle}}, of which one may be the optimizer's.
        variables: {name: handle}, the weights of the model that could train; of a file that only names arrays, all.
        shapes: {variable: shape} of those whose slots go by position, under the names that were given.
        definition: the definition; None while it is not known.
        entry: the stock entry whose form the file has; None for one of everstep's.
        branches: {branch: Claim} of a partition, where each optimizer in the file counts its own updates.
        scope: where in the file the optimizer is, for people and for `scope=`.
        counted: True if the file has a count of updates.
        notes: sentences on what the file lacks that a state can do without.
        missing: sentences on why no state can be read.
        unused: [handle] of slots that the stock optimizer keeps and the definition does not use.
    """

    __slots__ = ()

    def __new__(cls, contents, target=None, class_name=None, config=None, scaling=None, loss_scale=(), copies=(),
                entries=(), slots=(), values=(), powers=(), variables=(), shapes=(), definition=None, entry=None,
                branches=(), scope="", counted=True, notes=(), missing=(), unused=()):
        return super(Claim, cls).__new__(
            cls, contents, target, class_name, config, scaling, OrderedDict(loss_scale), OrderedDict(copies),
            tuple(entries), OrderedDict(slots), OrderedDict(values), OrderedDict(powers), OrderedDict(variables),
            dict(shapes), definition, entry, OrderedDict(branches), scope, counted, tuple(notes), tuple(missing),
            tuple(unused))

    @property
    def path(self):
        return self.contents.path

    def with_note(self, note):
        return self._replace(notes=self.notes + (note,)) if note else self

    def explained(self):
        """Returns the names of the arrays that this explains as slots, counters or scalars."""
        handles = list(self.values.values())
        for slots in self.slots.values():
            handles.extend(slots.values())
        for powers in [self.powers] + [each.powers for each in self.branches.values()]:
            if len(powers) == 1:
                handles.extend(next(iter(powers.values())).values())
        return frozenset([handle.name for handle in handles if hasattr(handle, "name")])

    def owned(self, request):
        """Returns {name: handle} of all arrays that are the optimizer's: what a file of weights alone has not.

        `global_step` is not: it is the graph's. If the user asks for some variables or a scope, and there are beta
        powers of several optimizers, he has to say whose are meant, by `updates`, the name of one.

        Args:
            request: the Request that the claim answers.

        Raises:
            FileError: the powers are of several optimizers, and the user does not say.
        """
        handles = [handle for name, handle in self.values.items() if name != "global_step"]
        handles += list(self.loss_scale.values()) + list(self.unused)
        for slots in self.slots.values():
            handles.extend(slots.values())
        named = [each for each in self.powers.values()
                 if request.updates in [handle.name.partition(":")[0] for handle in each.values()]]
        powers = named or list(self.powers.values())
        if len(powers) > 1 and (request.scope or request.variables):
            raise FileError("{} has the beta powers of {} optimizers, {}. Say which to read: give its name as "
                            "updates= (--updates)".format(self.path, len(powers), " and ".join(self.powers)))
        for each in powers:
            handles.extend(each.values())
        return OrderedDict((handle.name, handle) for handle in handles if hasattr(handle, "name"))

    def describe(self):
        """Returns a phrase for messages: which optimizer, and of how many variables."""
        name = self.entry.native if self.entry is not None else self.definition._short()
        return "{}{} with slots of {} variables ({} arrays)".format(
            name, " in " + self.scope if self.scope else "", len(self.slots), len(self.explained()))


def check_has_state(claim):
    """Raises FileError if the file holds no optimizer state."""
    if claim.missing:
        raise FileError("{} has {}; there is no optimizer's state to read".format(
            claim.path, "; ".join(claim.missing)))


def best(claims, scope=None):
    """Returns the claim that explains most of the optimizer's state.

    Args:
        scope: the place of the optimizer in the file, as `Claim.scope`, or the start or end of it; or the scope of the
            variables that are meant.

    Raises:
        StateError: no claim is of that scope, or two have as good a right.
    """
    if scope is not None:
        claims = _in_scope(claims, "/%s/" % scope.strip("/"))
    claims = sorted(claims, key=lambda claim: -len(claim.explained()))
    first = claims[0]
    rivals = [claim for claim in claims[1:] if claim.explained() != first.explained() and (
        len(claim.explained()) == len(first.explained()) or not set(claim.slots) & set(first.slots))]
    if rivals:
        raise StateError("{} has the state of more than one optimizer: {}. Give scope= (--scope), the place of one in "
                         "the file, or a partition".format(first.path, " and ".join(
                             claim.describe() for claim in [first] + rivals)))
    return first


def _in_scope(claims, scope):
    """Returns [Claim] of the optimizers in a scope, or on variables in it. Raises StateError if there are none."""
    found = [claim for claim in claims if scope in "/%s/" % claim.scope]
    for claim in [] if found else claims:
        slots = OrderedDict((name, each) for name, each in claim.slots.items() if scope in "/%s/" % name)
        found += [claim._replace(slots=slots)] if slots else []
    if not found:
        raise StateError("{} has no optimizer in {!r}, and no variables with slots; there is {}".format(
            claims[0].path, scope[1:-1], " and ".join(claim.describe() for claim in claims)))
    return found
