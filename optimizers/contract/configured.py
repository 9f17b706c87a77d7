"""Values with declared settings: how definitions and schedules are built, compared, shown, copied and saved."""
from __future__ import absolute_import, division, print_function

import numbers
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperValueError
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.contract.declared import Declared

_PLAIN = (numbers.Number, str, bytes, type(u""), type(None))


class Configured(Declared(str("_Configured"), (object,), {})):  # type: ignore[misc]  # a metaclass call that Python 2 reads too
    """Base of `Definition` and `Schedule`: immutable, built from its declared arguments."""

    kind = "object"  # the key that names the class in a config
    keyword_only = ()  # type: tuple[str, ...]
    _keywords = None  # type: str | None  # the name of the constructor's `**keywords`, if it has them
    hints = {}  # type: dict[str, str]  # what to do instead of giving an argument that there is not

    def __init__(self, *args, **kwargs):
        self.__dict__["_values"] = self._checked(args, kwargs)
        self._check()

    def _check(self):
        """Raises an error where the object as a whole makes no sense."""

    def __setattr__(self, name, value):
        raise HyperValueError(
            "{0} is fixed once made, so {1} cannot be set; {0}(...).replace({1}=...) is a changed copy of it".format(
                type(self).__name__, name
            )
        )

    @classmethod
    def argument_names(cls):
        """The constructor's arguments in order."""
        names = [name for name in cls.declared_order if cls.declarations[name].is_argument]
        return [n for n in names if n not in cls.keyword_only] + [n for n in names if n in cls.keyword_only]

    @classmethod
    def _shown_default(cls, name):
        """Returns what a signature shows as an argument's default."""
        return cls.declarations[name].default

    @classmethod
    def takes(cls, name):
        """Whether the constructor has an argument."""
        return name in cls.argument_names()

    def _checked(self, args, kwargs):
        owner = type(self).__name__
        names = self.argument_names()
        positional = [name for name in names if name not in self.keyword_only]
        if len(args) > len(positional):
            raise DefinitionError(
                "{} takes at most {} positional arguments ({}); got {}".format(
                    owner, len(positional), ", ".join(positional) or "none", len(args)
                )
            )
        given = OrderedDict(zip(positional, args))
        for name, value in kwargs.items():
            if name in given:
                raise DefinitionError("{} got {} twice".format(owner, name))
            if name not in names:
                hint = "; " + self.hints[name] if name in self.hints else ""
                raise DefinitionError(
                    "{} has no argument {}; it takes {}{}".format(owner, name, ", ".join(names) or "none", hint)
                )
            given[name] = value
        values = OrderedDict()
        for name in names:
            declaration = self.declarations[name]
            if name in given:
                values[name] = declaration.check(owner, given[name])
            else:
                values[name] = self._default(name, values)
        return values

    def _default(self, name, values):
        """What an argument is where it was not given; `values` are those before it."""
        if self.declarations[name].default is REQUIRED:
            raise DefinitionError("{} needs {}".format(type(self).__name__, name))
        return self.declarations[name].default

    def _given(self):
        """The arguments as one would write them, those left at a keyword-only default left out."""
        return OrderedDict(
            (name, value)
            for name, value in self._values.items()
            if name not in self.keyword_only or value != self._default(name, self._values)
        )

    def replace(self, **changes):
        """A copy with some arguments changed."""
        return type(self)(**dict(self._given(), **changes))

    # Fixed once made, so a copy is the thing itself, tensors and callables in it too.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _rebuilt, (type(self), dict(self._given()))

    def _key(self):
        return once(self, "key", lambda: (type(self),) + _comparable(tuple(self._values.items())))

    def __eq__(self, other):
        if self is other:
            return True
        return isinstance(other, Configured) and hash(self) == hash(other) and self._key() == other._key()

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return once(self, "hash", lambda: hash(self._key()))

    def _short(self):
        arguments = ", ".join(
            "{}={}".format(name, value._short() if isinstance(value, Configured) else repr(value))
            for name, value in self._given().items()
        )
        return "{}({})".format(type(self).__name__, arguments)

    def __repr__(self):
        return self._short()

    def get_config(self, strict=True):
        """A dictionary of plain values from which `from_config` makes an equal object.

        Args:
            strict: whether a value that is not plain (a tensor, a callable) is an error; otherwise it is left out.
        """
        config = {self.kind: type(self).__name__, "module": type(self).__module__}
        for name, value in self._values.items():
            if isinstance(value, Configured):
                config[name] = value.get_config(strict)
            elif _is_plain(value):
                config[name] = value
            elif strict:
                raise ConfigError(
                    "{}.{} is {!r}, which cannot be written to a config; give a number or an everstep.Schedule".format(
                        type(self).__name__, name, value
                    )
                )
        return config

    @classmethod
    def from_config(cls, config):
        """The object that a config describes. Its class is looked for among those already imported."""
        if not isinstance(config, dict) or cls.kind not in config:
            raise ConfigError(
                "the config of a {0} is a dictionary with the key {0!r}; got {1!r}".format(cls.kind, config)
            )
        made = cls.named(config[cls.kind], config.get("module"))
        arguments = {}
        for name, value in config.items():
            if name in (cls.kind, "module"):
                continue
            if not made.takes(name):
                raise ConfigError(
                    "{} has no argument {!r}; it takes {}".format(made.__name__, name, ", ".join(made.argument_names()))
                )
            arguments[name] = cls._from_plain(value)
        return made(**arguments)

    @staticmethod
    def _from_plain(value):
        if isinstance(value, dict):
            for kind in Configured.__subclasses__():
                if kind.kind in value:
                    return kind.from_config(value)
        return value

    @classmethod
    def named(cls, name, module=None):
        """The imported subclass of that name; `module` decides between several."""
        imported = cls.registered() + [cls]
        known = [found for found in imported if found.__name__ == name]
        exact = [found for found in known if found.__module__ == module]
        if exact or len(known) == 1:
            return (exact or known)[0]
        if known:
            raise ConfigError(
                "the {} {!r} of the config is ambiguous: it is in {}, and when it was saved it was in {}".format(
                    cls.kind, name, " and ".join(found.__module__ for found in known), module
                )
            )
        raise ConfigError(
            "no {} called {!r} is imported; import {} first. Known are: {}".format(
                cls.kind, name, module or "the module that defines it", ", ".join(found.__name__ for found in imported)
            )
        )

    @classmethod
    def registered(cls):
        """All imported subclasses, in the order of their names; of a class that was defined again, the last."""
        found, waiting = {}, list(cls.__subclasses__())
        while waiting:
            made = waiting.pop()
            waiting.extend(made.__subclasses__())
            place = made.__name__, made.__module__
            if place not in found or found[place].serial < made.serial:
                found[place] = made
        return [found[place] for place in sorted(found)]


def once(made, what, make):
    """Something that follows from a definition or schedule, which is fixed, and that every step asks for."""
    known = vars(made).setdefault("_known", {})
    if what not in known:
        known[what] = make()
    return known[what]


def _comparable(value):
    """A value by which two objects are equal; what is not plain, such as a tensor, is equal to itself alone."""
    if isinstance(value, Configured):
        return value._key()
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    return value if isinstance(value, _PLAIN) else id(value)


def _is_plain(value):
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)


def _rebuilt(made, arguments):
    return made(**arguments)
