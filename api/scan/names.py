"""What names stand for: follows imports, aliases and scopes to full dotted names, across the scanned files."""
from __future__ import absolute_import, division, print_function

import os
from collections import namedtuple

from everstep.scan.parsing import bare, literal, text_of, walk

_DEEPEST = 12  # steps from a name to what it stands for
_SCOPES = ("function_definition", "class_definition", "lambda", "list_comprehension", "set_comprehension",
           "dictionary_comprehension", "generator_expression")
# What a name is bound to. kind: import (value: a dotted name), value (a node), class (a node), other.
_Bound = namedtuple("_Bound", "kind value scope")
# A class of the scanned code. node: its definition; scope: where it stands; module: the `Module`.
OwnClass = namedtuple("OwnClass", "node scope module")


class Scope(object):
    """The names that a module, class, function or comprehension binds.

    Attributes:
        bound: `{name: [_Bound]}`.
        stars: the modules of `from module import *`.
        attributes: of a class, `{name: [_Bound]}` of what its methods assign to `self`.
        ends: whether names are looked up outside of it as well.
    """

    def __init__(self, kind, parent, module):
        self.kind, self.parent, self.module = kind, parent, module
        self.bound, self.stars, self.attributes, self.global_names = {}, [], {}, set()

    def bind(self, name, kind, value=None):
        scope = self.module.scope if name in self.global_names else self
        scope.bound.setdefault(name, []).append(_Bound(kind, value, self))

    def own_class(self):
        """Returns the scope of the innermost class around; None if there is none."""
        scope = self
        while scope is not None and scope.kind != "class_definition":
            scope = scope.parent
        return scope


class Module(object):
    """A scanned file: its scopes, and what each name in them stands for.

    Attributes:
        scope: the names of the module.
        scopes: `{id of a node: Scope}` of the nodes that open one.
        content: the bytes of the file.
    """

    def __init__(self, path, chunks, project, content=b""):
        self.path, self.chunks, self._project, self.content = path, chunks, project, content
        self.package = _dotted_folder(path)
        self.scope = Scope("module", None, self)
        self.scopes = {}
        self._global = {}  # {name: what it stands for in the module}
        for chunk in chunks:
            self._bind_all(chunk.root)

    def scope_of(self, node):
        """Returns the scope that a node stands in."""
        node = node.parent
        while node is not None and node.id not in self.scopes:
            node = node.parent
        return self.scopes[node.id] if node is not None else self.scope

    def _bind_all(self, root):
        waiting = [(root, self.scope)]
        while waiting:
            node, scope = waiting.pop()
            inner = self._opened(node, scope) if node.type in _SCOPES else scope
            _BINDERS.get(node.type, _bind_nothing)(node, inner, scope)
            waiting += [(child, inner) for child in reversed(node.named_children)]

    def _opened(self, node, scope):
        inner = self.scopes[node.id] = Scope(node.type, scope, self)
        name = node.child_by_field_name("name")
        if name is not None:
            scope.bind(text_of(name), "class" if node.type == "class_definition" else "other", node)
        return inner

    def absolute(self, dotted):
        """Returns the name of a relative import, such as `..optim`, from the root of its package."""
        name = dotted.lstrip(".")
        level = len(dotted) - len(name)
        if not level:
            return name
        parts = self.package.split(".") if self.package else []
        parts = parts[:len(parts) - level + 1]
        return ".".join(parts + ([name] if name else [])) or name

    def resolved(self, node, scope=None, depth=0):
        """Returns what an expression stands for: a list of dotted names and `OwnClass`es, and None for each unknown.

        Several, where the code binds a name in several ways.
        """
        node = bare(node)
        scope = scope or self.scope_of(node)
        if depth > _DEEPEST:
            return [None]
        if node.type == "identifier":
            return self.named(text_of(node), scope, depth + 1)
        if node.type == "attribute":
            return self._attribute(node, scope, depth)
        if node.type == "conditional_expression" and len(node.named_children) == 3:
            ends = node.named_children[0], node.named_children[2]
            return _unique(each for side in ends for each in self.resolved(side, scope, depth + 1))
        if node.type == "boolean_operator":
            sides = [node.child_by_field_name(side) for side in ("left", "right")]
            return _unique(each for side in sides for each in self.resolved(side, scope, depth + 1))
        if node.type == "call":
            return self._getattr(node, scope, depth)
        return [] if node.type == "none" else [None]

    def _attribute(self, node, scope, depth):
        holder, name = node.child_by_field_name("object"), text_of(node.child_by_field_name("attribute"))
        if holder.type == "identifier" and text_of(holder) == "self" and scope.own_class() is not None:
            return self._of_bounds(scope.own_class().attributes.get(name, []), depth)
        return self._below(self.resolved(holder, scope, depth + 1), name, depth)

    def _below(self, holders, name, depth):
        found = []
        for each in holders:
            followed = [each + "." + name] if _is_name(each) else [None]
            found += self._project.followed(followed[0], self, depth + 1) if followed[0] else followed
        return _unique(found)

    def _getattr(self, node, scope, depth):
        """Returns what `getattr(module, "name")` and `import_module("name")` stand for."""
        function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        given = arguments.named_children if arguments is not None else []
        called = text_of(function)
        if called == "getattr" and len(given) >= 2:
            known, name = literal(given[1])
            if known and isinstance(name, str):
                default = self.resolved(given[2], scope, depth + 1) if len(given) > 2 else []
                return _unique(self._below(self.resolved(given[0], scope, depth + 1), name, depth) + default)
        if called.endswith("import_module") and len(given) == 1:
            known, name = literal(given[0])
            if known and isinstance(name, str):
                return [name]
        return [None]

    def named(self, name, scope, depth=0):
        """Returns what a name stands for in a scope, see `resolved`."""
        start = scope
        while scope.parent is not None:
            if name in scope.bound and (scope.kind != "class_definition" or scope is start):
                return self._of_bounds(scope.bound[name], depth)
            scope = scope.parent
        if name not in self._global:
            self._global[name] = [None]  # while it is followed: modules import each other
            self._global[name] = self._of_module(name, depth)
        return self._global[name]

    def _of_module(self, name, depth):
        if name in self.scope.bound:
            return self._of_bounds(self.scope.bound[name], depth, name)
        starred = [each for star in self.scope.stars
                   for each in self._project.followed(star + "." + name, self, depth + 1)]
        return _unique(starred) or [None]

    def _of_bounds(self, bounds, depth, name=None):
        found = []
        for bound in bounds:
            below = _attributes_of(bound, name)
            if below:  # tf = tf.compat.v1
                moved = found
                for attribute in below:
                    moved = self._below(moved, attribute, depth)
                found = moved if _is_always_run(bound.value) else found + moved
                continue
            if bound.kind == "import":
                found += self._project.followed(bound.value, self, depth + 1)
            elif bound.kind == "value":
                found += self.resolved(bound.value, bound.scope, depth + 1)
            elif bound.kind == "class":
                found.append(OwnClass(bound.value, bound.scope, self))
            else:
                found.append(None)
        return _unique(found) or [None]

    def followed(self, dotted):
        """Returns what a dotted name of this file stands for, through the scanned files; see `resolved`."""
        return self._project.followed(dotted, self)

    def attributes_named(self, name):
        """Returns the dotted names that attributes of a name, such as `tf.keras`, stand for."""
        found = set()
        for chunk in self.chunks:
            for node in walk(chunk.root):
                if node.type == "attribute" and text_of(node.child_by_field_name("attribute")) == name:
                    found.update(each for each in self.resolved(node) if _is_name(each))
        return found

    def values(self, node, scope=None):
        """Returns [(node, its scope)] of what a name or an attribute of `self` was assigned."""
        scope = scope or self.scope_of(node)
        bounds = []  # type: list
        if node.type == "identifier":
            name, start = text_of(node), scope
            while scope is not None and (name not in scope.bound or scope.kind == "class_definition" and
                                         scope is not start):
                scope = scope.parent
            bounds = scope.bound[name] if scope is not None else []
        elif node.type == "attribute" and text_of(node.child_by_field_name("object")) == "self":
            own = scope.own_class()
            bounds = own.attributes.get(text_of(node.child_by_field_name("attribute")), []) if own is not None else []
        return [(bare(bound.value), bound.scope) for bound in bounds if bound.kind == "value"]


class Project(object):
    """All scanned files, so that a name is followed from one to another.

    Args:
        is_known: a function of a dotted name that returns whether the name says all: it is not followed into the files
            of the library that has it, which may be scanned too.
    """

    def __init__(self, is_known):
        self._modules, self._is_known = {}, is_known  # {(folder or "", dotted name): Module}

    def add(self, module):
        stem = os.path.splitext(os.path.basename(module.path))[0]
        folder = os.path.dirname(os.path.abspath(module.path))
        dotted = module.package if stem == "__init__" else ".".join(filter(None, (module.package, stem)))
        self._modules["", dotted] = module
        self._modules[folder, stem] = module

    def followed(self, dotted, module, depth=0):
        """Returns what a dotted name stands for, through the scanned files where it leads there; see `resolved`."""
        if depth > _DEEPEST:
            return [None]
        absolute = module.absolute(dotted)
        if self._is_known(absolute):
            return [absolute]
        parts = absolute.split(".")
        folder = os.path.dirname(os.path.abspath(module.path))
        for length in range(len(parts), 0, -1):
            prefix, rest = ".".join(parts[:length]), parts[length:]
            other = self._modules.get(("", prefix)) or self._modules.get((folder, prefix))
            if other is None or other is module and not rest:
                continue
            if not rest:
                return [prefix]
            if rest[0] not in other.scope.bound and not other.scope.stars:
                continue
            found = other.named(rest[0], other.scope, depth + 1)
            for name in rest[1:]:
                found = other._below(found, name, depth + 1)
            return found
        return [absolute]


def _attributes_of(bound, name):
    """Returns the attributes in `name.a.b` that the name itself is assigned; () if it is another value."""
    if bound.kind != "value" or name is None:
        return ()
    node, attributes = bare(bound.value), []
    while node.type == "attribute":
        attributes.insert(0, text_of(node.child_by_field_name("attribute")))
        node = node.child_by_field_name("object")
    return attributes if node.type == "identifier" and text_of(node) == name else ()


def _is_always_run(node):
    """Returns whether an assigned value stands in a statement of the module itself, not of an `if` or `try`."""
    while node.parent is not None and node.parent.type in ("assignment", "expression_statement"):
        node = node.parent
    return node.parent is not None and node.parent.type == "module"


def _is_name(value):
    return value is not None and not isinstance(value, OwnClass)


def _unique(values):
    unique = []
    for value in values:
        if value not in unique:
            unique.append(value)
    return unique


def _dotted_folder(path):
    """Returns the dotted name of the package that a file is in; "" if it is in none."""
    folder, parts = os.path.dirname(os.path.abspath(path)), []
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return ".".join(parts)


# What each kind of node binds. Arguments: the node, the scope inside of it, the scope around it.


def _bind_nothing(node, inner, scope):
    pass


def _bind_import(node, inner, scope):
    for child in node.named_children:
        if child.type == "aliased_import":
            scope.bind(text_of(child.child_by_field_name("alias")), "import",
                       text_of(child.child_by_field_name("name")))
        elif child.type == "dotted_name":
            first = text_of(child).split(".")[0]
            scope.bind(first, "import", first)


def _bind_import_from(node, inner, scope):
    module = node.child_by_field_name("module_name")
    name = text_of(module).replace(" ", "")
    absolute = scope.module.absolute(name)
    for child in node.named_children:
        if child.type == "wildcard_import":
            scope.module.scope.stars.append(absolute)
        elif child.type == "aliased_import":
            scope.bind(text_of(child.child_by_field_name("alias")), "import",
                       absolute + "." + text_of(child.child_by_field_name("name")))
        elif child.type == "dotted_name" and child != module:
            scope.bind(text_of(child), "import", absolute + "." + text_of(child))


def _bind_assignment(node, inner, scope):
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return
    if left.type == "identifier":
        while right.type == "assignment":  # a = b = value
            right = right.child_by_field_name("right")
        scope.bind(text_of(left), "value", right)
    elif left.type == "attribute" and text_of(left.child_by_field_name("object")) == "self":
        own = scope.own_class()
        if own is not None:
            bound = _Bound("value", right, scope)
            own.attributes.setdefault(text_of(left.child_by_field_name("attribute")), []).append(bound)
    elif left.type in ("pattern_list", "tuple_pattern", "list_pattern"):
        items = right.named_children if right.type in ("expression_list", "tuple", "list") else []
        pairs = zip(left.named_children, items) if len(items) == len(left.named_children) else None
        for name, value in pairs or ():
            if name.type == "identifier":
                scope.bind(text_of(name), "value", value)
        if pairs is None:
            _bind_targets(left, scope)


def _bind_targets(node, scope):
    for each in walk(node, lambda below: below.type not in ("attribute", "subscript", "call")):
        if each.type == "identifier":
            scope.bind(text_of(each), "other")


def _bind_left(node, inner, scope):
    left = node.child_by_field_name("left")
    if left is not None:
        _bind_targets(left, scope)


def _bind_named_expression(node, inner, scope):
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is not None and value is not None:
        scope.bind(text_of(name), "value", value)


def _bind_alias(node, inner, scope):
    """`with ... as name`, `except ... as name`, and patterns of match."""
    for child in node.named_children[1:]:
        _bind_targets(child, scope)


def _bind_parameters(node, inner, scope):
    parameters = node.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        name = parameter.child_by_field_name("name") or parameter
        if name.type in ("typed_parameter", "list_splat_pattern", "dictionary_splat_pattern"):
            name = next((child for child in walk(name) if child.type == "identifier"), name)
        if name.type == "identifier":
            inner.bind(text_of(name), "other")


def _bind_global(node, inner, scope):
    scope.global_names.update(text_of(child) for child in node.named_children)


_BINDERS = {
    "import_statement": _bind_import, "import_from_statement": _bind_import_from, "assignment": _bind_assignment,
    "named_expression": _bind_named_expression, "for_statement": _bind_left, "for_in_clause": _bind_left,
    "as_pattern": _bind_alias, "function_definition": _bind_parameters, "lambda": _bind_parameters,
    "global_statement": _bind_global,
}
