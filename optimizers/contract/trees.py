"""A definition and its children as one tree with flat names.

Inside a rule names nest (`slots.inner.m`); outside and on disk they are flat: a base rule's are bare (`m`), a
wrapper's carry its prefix (`accumulate/sum`), and where a wrapper has several children their key comes first.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.errors import RuleError
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.declared import Declared

Node = namedtuple("Node", "definition prefix children")  # children: {key: Node}


def tree(definition):
    """The nodes of a definition, each with the prefix of its names."""
    return once(definition, "tree", lambda: _node(definition, "", set()))


def _node(definition, keys, seen):
    own = keys + definition.prefix + "/" if definition.prefix else keys
    repeat, base = 0, own
    while definition.prefix and own in seen:  # the same wrapper twice: the outer one keeps the plain name
        repeat += 1
        own = "{}_{}/".format(base[:-1], repeat)
    seen.add(own)
    children = definition.children()
    inner = OrderedDict()
    for key, child in children.items():
        inner[key] = _node(child, keys if len(children) == 1 else keys + key + "/", seen)
    return Node(definition, own, inner)


def walk(node, active=False):
    """A node and all below it, children before their wrapper, so that a base rule's names come first.

    Args:
        active: whether children are left out that have no part in the variable that the definition is specialized for.
    """
    inside = node.definition.active() if active else node.children
    for key, child in node.children.items():
        for below in walk(child, active) if key in inside else ():
            yield below
    yield node


def flat(definition, kind):
    """`{flat name: (owner, declaration)}` of all declarations of a kind; slots only where they exist.

    Hypers and scalars are of the whole optimizer, those of parts that a variable has nothing to do with too.
    """
    return once(definition, kind, lambda: _flat(definition, kind))


def _flat(definition, kind):
    found = OrderedDict()
    for node in walk(tree(definition), active=kind == "slot"):
        owner = node.definition
        for name in owner.declared_order:
            declaration = owner.declarations[name]
            if declaration.kind == kind and (kind != "slot" or declaration.exists(owner)):
                found[node.prefix + name] = (owner, declaration)
    return found


class Names(object):
    """Values by the names a rule uses: `names.m`, and one level down for a child's, `names.inner.m`.

    `values` maps flat names to values; those in `shared` are the same at every level.
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

    def scaled(self, name, factor):
        """The same with every value of that name, here and below, times a factor."""
        times = {key: value * factor for key, value in self._values.items() if key.split("/")[-1] == name}
        return Names(self._node, dict(self._values, **times), self._shared)

    def _known(self):
        own = len(self._node.prefix)
        names = {name[own:] for name in self._values if name.startswith(self._node.prefix)}
        return {name for name in names if "/" not in name}.union(self._node.children, self._shared)


def flatten(definition, kind, returned, verb):
    """`{flat name: value}` of what a verb returned, its keys checked against the declarations.

    Kind "sum" is what `measure` returns: names of its own, which nothing else may have.
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
            fits = fits and (kind != "slot" or declaration.exists(node.definition))
        if not fits:
            raise RuleError("{}.{} returned {!r}, {}".format(owner, verb, name, _why_not(node.definition, name, kind)))
        yield node.prefix + name, value


def _why_not(definition, name, kind):
    if kind == "sum":
        return "which is a declared or reserved name; give the sum another"
    declared = flat(definition, kind)
    return "which is no {} of it; it has {}".format(kind, ", ".join(declared) or "none")


def with_hypers(definition, values):
    """The definition with some hypers changed, by their flat names."""
    return _with_hypers(tree(definition), values)


def _with_hypers(node, values):
    changes = {key: _with_hypers(child, values) for key, child in node.children.items()}
    for name, declaration in node.definition.declarations.items():
        if declaration.kind == "hyper" and node.prefix + name in values:
            changes[name] = values[node.prefix + name]
    return node.definition.replace(**changes)
