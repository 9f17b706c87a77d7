"""Treats a definition and its children as one tree, and maps nested names to flat ones.

Inside a verb names nest (`slots.inner.m`). Outside and on disk they are flat. The names of a base rule stay as they are
(`m`), those of a wrapper get its prefix (`accumulate/sum`). If a wrapper has several children, the child's key comes
first.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.errors import RuleError
from everstep.optimizers.contract.configured import comparable, once
from everstep.optimizers.contract.declared import Declared

Node = namedtuple("Node", "definition prefix children")  # children: {key: Node}


def tree(definition):
    """Returns a definition as a `Node`: the definition, the prefix of its flat names, and its children's nodes."""
    return once(definition, "tree", lambda: _node(definition, "", set()))


def _node(definition, keys, seen):
    prefix = keys + definition.prefix + "/" if definition.prefix else keys
    repeat, base = 0, prefix
    while definition.prefix and prefix in seen:  # the same wrapper twice: the outer one keeps the plain name
        repeat += 1
        prefix = "{}_{}/".format(base[:-1], repeat)
    seen.add(prefix)
    children = definition.children()
    nodes = OrderedDict()
    for key, child in children.items():
        nodes[key] = _node(child, keys if len(children) == 1 else keys + key + "/", seen)
    return Node(definition, prefix, nodes)


def walk(node, active=False):
    """Yields all nodes of a tree, children before their wrapper, so that the names of the base rule come first.

    Args:
        active: True to leave out children that do not update the variable that the definition is specialized for.
    """
    keys = node.definition.active() if active else node.children
    for key, child in node.children.items():
        for below in walk(child, active) if key in keys else ():
            yield below
    yield node


def flat(definition, kind):
    """Returns `{flat name: (owner, declaration)}` of all declarations of a kind that exist, by their `when`.

    Hypers and scalars belong to the whole optimizer. They are all listed, even those of children that do not update
    the variable.
    """
    return once(definition, kind, lambda: _flat(definition, kind))


def _flat(definition, kind):
    declarations = OrderedDict()
    for node in walk(tree(definition), active=kind == "slot"):
        owner = node.definition
        for name in owner.declared_order:
            declaration = owner.declarations[name]
            if declaration.kind == kind and declaration.exists(owner):
                declarations[node.prefix + name] = (owner, declaration)
    return declarations


def scalar_starts(definition):
    """Returns `{flat name: initial value}` of the scalars."""
    scalars = flat(definition, "scalar").items()
    return OrderedDict((name, declared.initial_value(owner)) for name, (owner, declared) in scalars)


def changed_hypers(definition, other):
    """Returns the flat names of the hypers that have other values in `other`, a definition with the same hypers."""
    pairs = zip(flat(definition, "hyper").items(), flat(other, "hyper").values())
    return [
        name
        for (name, (owner, declared)), (other_owner, _) in pairs
        if comparable(getattr(owner, declared.name)) != comparable(getattr(other_owner, declared.name))
    ]


class Names(object):
    """Gives values under the names that a verb uses: `names.m`, and `names.inner.m` for a child's.

    Args:
        node: the `Node` of the definition.
        values: `{flat name: value}`.
        shared: names without a prefix, the same for the definition and all its children.
    """

    def __init__(self, node, values, shared=()):
        self._node, self._values, self._shared = node, values, shared

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._node.children:
            return Names(self._node.children[name], self._values, self._shared)
        flat_name = name if name in self._shared else self._node.prefix + name
        if flat_name not in self._values:
            raise RuleError(
                "{} has no {!r} here; there are: {}".format(
                    type(self._node.definition).__name__, name, ", ".join(sorted(self._known())) or "none"
                )
            )
        return self._values[flat_name]

    def flat_name(self, name):
        """Returns the flat name of one of the definition's own names."""
        return self._node.prefix + name

    def scaled(self, name, factor):
        """Returns the same names, with every value of one name multiplied by a factor, at all levels."""
        products = {key: value * factor for key, value in self._values.items() if key.split("/")[-1] == name}
        return Names(self._node, dict(self._values, **products), self._shared)

    def replaced(self, values):
        """Returns the same names, with other values of some of the definition's own."""
        flat = {self.flat_name(name): value for name, value in values.items()}
        return Names(self._node, dict(self._values, **flat), self._shared)

    def _known(self):
        length = len(self._node.prefix)
        names = {name[length:] for name in self._values if name.startswith(self._node.prefix)}
        return {name for name in names if "/" not in name}.union(self._node.children, self._shared)


def later(names, updates):
    """Returns the same `Names`, with a count of updates that is larger by a whole number."""
    values = dict(names._values, updates=names._values["updates"] + updates)
    return Names(names._node, values, names._shared)


def flatten(definition, kind, returned, verb):
    """Returns the nested dictionary that a verb returned as `{flat name: value}`.

    Raises RuleError if a key is not declared with this kind. The kind "sum" is for `measure`: its keys must be neither
    declared nor reserved.
    """
    return OrderedDict(_flatten(tree(definition), kind, returned, verb))


def _flatten(node, kind, returned, verb):
    owner = type(node.definition).__name__
    if not isinstance(returned, dict):
        raise RuleError("{}.{} must return a dict of {}s; it returned {!r}".format(owner, verb, kind, returned))
    for name, value in returned.items():
        if name in node.children:
            for item in _flatten(node.children[name], kind, value, verb):
                yield item
            continue
        declaration = node.definition.declarations.get(name)
        if kind == "sum":
            fits = declaration is None and name not in Declared.reserved
        else:
            fits = declaration is not None and declaration.kind == kind
            fits = fits and declaration.exists(node.definition)
        if not fits:
            raise RuleError("{}.{} returned {!r}, {}".format(owner, verb, name, _why_not(node.definition, name, kind)))
        yield node.prefix + name, value


def _why_not(definition, name, kind):
    if kind == "sum":
        return "which is a declared or reserved name; give the sum another"
    declared = flat(definition, kind)
    return "which is no {} of it; it has {}".format(kind, ", ".join(declared) or "none")


def with_hypers(definition, values):
    """Returns a copy of a definition with some hypers changed. `values` is `{flat name: value}`."""
    return _with_hypers(tree(definition), values)


def _with_hypers(node, values):
    changes = {key: _with_hypers(child, values) for key, child in node.children.items()}
    for name, declaration in node.definition.declarations.items():
        if declaration.kind == "hyper" and node.prefix + name in values:
            changes[name] = values[node.prefix + name]
    return node.definition.replace(**changes)


def chosen(ops, choice, new, old):
    """Returns the slots `new` where a condition holds, else those of `old`. Both nest like the definitions.

    Args:
        ops: the operations of a verb.
        choice: the condition.
        new: {name: value, or such a dictionary of a child}.
        old: the slots that the verb got.
    """
    return {
        name: chosen(ops, choice, value, getattr(old, name))
        if isinstance(value, dict)
        else ops.where(choice, value, getattr(old, name))
        for name, value in new.items()
    }
