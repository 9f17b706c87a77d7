"""The metaclass of definitions and schedules. It collects the declarations of a class body and reports mistakes."""
from __future__ import absolute_import, division, print_function

import itertools
import types

from everstep.errors import DefinitionError
from everstep.optimizers.contract.declarations import Declaration
from everstep.optimizers.contract.signature import signature_of

_serials = itertools.count()
_TAKES_ANY = 0x04  # the flag of a function that has *args


class Declared(type):
    """Metaclass that collects declarations in order, and refuses names that would hide another attribute."""

    # Names that rules, configs and counters use themselves, so no declaration may have them. `lr` is an alias of
    # learning_rate on every Keras. A native class refuses more for a hyper: its own members.
    reserved = frozenset(
        "definition module schedule everstep inner name lr decay updates pending t grad var ops slots slot hyper "
        "hypers scalars touched row_number place_in_row".split()
    )
    declarations = {}  # type: dict[str, Declaration]
    declared_order = ()  # type: tuple[str, ...]
    refresh_methods = ()  # type: tuple[tuple[str, int | str], ...]  # see contract/refreshing.py
    serial = 0  # the higher one of two classes of the same name was defined later

    # Made when it is asked for: importing everstep makes 40 classes.
    __signature__ = property(signature_of)

    def __new__(mcs, class_name, bases, body):
        inherited = {}
        for base in reversed(bases):
            inherited.update(getattr(base, "declarations", {}))
        for name, value in body.items():
            mcs.check_member(class_name, bases, name, value, inherited)
        declared = {name: value for name, value in body.items() if isinstance(value, Declaration)}
        for name, value in declared.items():
            if value.name is not None:
                raise DefinitionError(
                    "{}.{} and {} are one {}: declare each with a call of its own".format(
                        class_name, name, value.name, value.kind
                    )
                )
            value.name = name
            # An overriding declaration keeps its place, so that the order of positional arguments stays.
            value.order = inherited[name].order if name in inherited else value.order
        cls = super(Declared, mcs).__new__(mcs, class_name, bases, body)
        cls.declarations = dict(inherited, **declared)
        cls.declared_order = tuple(sorted(cls.declarations, key=lambda name: cls.declarations[name].order))
        marked = {name: mark for base in reversed(bases) for name, mark in getattr(base, "refresh_methods", ())}
        marked = {name: mark for name, mark in marked.items() if name not in body}
        marked.update((name, each.everstep_refresh) for name, each in body.items() if hasattr(each, "everstep_refresh"))
        cls.refresh_methods = tuple(sorted(marked.items(), key=lambda each: each[1]))
        cls.serial = next(_serials)
        for value in declared.values():
            value.check_declaration(cls)
        return cls

    @classmethod
    def check_member(mcs, class_name, bases, name, value, inherited):
        """Raises DefinitionError if one name of a class body is a mistake."""
        what = "{}.{}".format(class_name, name)
        if name == "__init__" and any(hasattr(base, "verbs") for base in bases):
            raise DefinitionError(
                "{0}.__init__ is not yours to write: declare the arguments of {0} with everstep.hyper and "
                "everstep.option, and its constructor is made from them".format(class_name)
            )
        if not isinstance(value, Declaration):
            if name in inherited:
                kind = inherited[name].kind
                raise DefinitionError(
                    "{} overrides the {} of a base class with {!r}; write `{} = everstep.{}(...)`".format(
                        what, kind, value, name, kind
                    )
                )
            mcs.check_verb(what, bases, name, value)
        elif name in inherited:
            if inherited[name].kind != value.kind:
                raise DefinitionError(
                    "{} is declared as a {}, but it is a {} in a base class".format(
                        what, value.kind, inherited[name].kind
                    )
                )
        elif (name, value.kind) != ("inner", "child"):  # the child of a wrapper may have this reserved name
            mcs.check_name(what, bases, name)
            if (name, value.kind) == ("steps", "scalar"):  # an option of that name is no state: accumulate has one
                raise DefinitionError("{}: a scalar cannot be called steps, the count of all steps".format(what))

    @classmethod
    def check_name(mcs, what, bases, name):
        """Raises DefinitionError if a declared name is private, reserved or an inherited attribute."""
        if name.startswith("_") or "__" in name:
            raise DefinitionError("{}: a declared name has no leading or double underscore".format(what))
        members = {member for base in bases for member in dir(base) if not member.startswith("_")}
        if name in mcs.reserved | members:
            raise DefinitionError(
                "{} clashes with a reserved or inherited name. Reserved are: {}. Inherited are: {}".format(
                    what, ", ".join(sorted(mcs.reserved)), ", ".join(sorted(members))
                )
            )

    @classmethod
    def check_verb(mcs, what, bases, name, value):
        """Raises DefinitionError if a verb takes another number of arguments than the engine gives it."""
        if not any(name in getattr(base, "verbs", ()) for base in bases) or not isinstance(value, types.FunctionType):
            return
        needed = inspect_arguments(next(getattr(base, name) for base in bases if hasattr(base, name)))
        names = inspect_arguments(value)
        if len(names) != len(needed) and not value.__code__.co_flags & _TAKES_ANY:
            raise DefinitionError("{}({}) must take ({})".format(what, ", ".join(names), ", ".join(needed)))


def inspect_arguments(function):
    """Returns the names of a function's positional arguments. `inspect` has no call for this on both Python 2 and 3."""
    code = getattr(function, "__func__", function).__code__
    return code.co_varnames[: code.co_argcount]
