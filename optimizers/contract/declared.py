"""The metaclass of definitions and schedules: it collects what a class body declares and refuses mistakes."""
from __future__ import absolute_import, division, print_function

import itertools
import types

from everstep.errors import DefinitionError
from everstep.optimizers.contract.declarations import Declaration
from everstep.optimizers.contract.signature import signature_of

_serials = itertools.count()
_TAKES_ANY = 0x04  # the flag of a function that has *args


class Declared(type):
    """Metaclass that collects declarations in order and refuses names that would hide something."""

    # Names that native optimizers and definitions use themselves, and that no hyper, option or slot may take.
    # `lr` is an alias of learning_rate on every Keras; the others are attributes that callbacks and checkpoints read.
    reserved = frozenset(
        "definition module schedule everstep inner name lr decay clipnorm clipvalue global_clipnorm use_locking "
        "iterations updates pending t grad var ops slots slot hyper hypers scalars weights variables get_slot "
        "get_slot_names get_weights set_weights get_updates get_gradients minimize compute_gradients apply_gradients "
        "touched row_number place_in_row".split()
    )
    declarations = {}  # type: dict[str, Declaration]
    declared_order = ()  # type: tuple[str, ...]
    serial = 0  # which of two classes of one name was made last

    # Made when it is asked for: importing everstep makes 40 classes.
    __signature__ = property(signature_of)

    def __new__(mcs, class_name, bases, body):
        inherited = {}
        for base in reversed(bases):
            inherited.update(getattr(base, "declarations", {}))
        for name, value in body.items():
            mcs.check_member(class_name, bases, name, value, inherited)
        own = {name: value for name, value in body.items() if isinstance(value, Declaration)}
        for name, value in own.items():
            if value.name is not None:
                raise DefinitionError(
                    "{}.{} is declared with the {} that is called {} already; make one for each".format(
                        class_name, name, value.kind, value.name
                    )
                )
            value.name = name
            # An overridden declaration keeps the place of the first one, so that positional arguments stay put.
            value.order = inherited[name].order if name in inherited else value.order
        made = super(Declared, mcs).__new__(mcs, class_name, bases, body)
        made.declarations = dict(inherited, **own)
        made.declared_order = tuple(sorted(made.declarations, key=lambda name: made.declarations[name].order))
        made.serial = next(_serials)
        for value in own.values():
            value.check_declaration(made)
        return made

    @classmethod
    def check_member(mcs, class_name, bases, name, value, inherited):
        what = "{}.{}".format(class_name, name)
        if name == "__init__" and any(hasattr(base, "verbs") for base in bases):
            raise DefinitionError(
                "{0}.__init__ is not yours to write: declare what {0} takes with everstep.hyper and everstep.option, "
                "and its constructor is made from that".format(class_name)
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
        elif (name, value.kind) != ("inner", "child"):  # as a wrapper's is called
            mcs.check_name(what, bases, name)

    @classmethod
    def check_name(mcs, what, bases, name):
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
        """A verb takes what the engine gives it, whatever the arguments are called."""
        if not any(name in getattr(base, "verbs", ()) for base in bases) or not isinstance(value, types.FunctionType):
            return
        needed = inspect_arguments(next(getattr(base, name) for base in bases if hasattr(base, name)))
        found = inspect_arguments(value)
        if len(found) != len(needed) and not value.__code__.co_flags & _TAKES_ANY:
            raise DefinitionError("{}({}) must take ({})".format(what, ", ".join(found), ", ".join(needed)))


def inspect_arguments(function):
    """The names of a function's positional arguments; `inspect` has no one name for this on Python 2 and 3."""
    code = getattr(function, "__func__", function).__code__
    return code.co_varnames[: code.co_argcount]
