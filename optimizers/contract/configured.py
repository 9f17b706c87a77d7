"""The base class of definitions and schedules: how they are built, compared, shown, copied and saved."""
from __future__ import absolute_import, division, print_function

import numbers
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError, HyperValueError
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.contract.declared import Declared
from everstep.optimizers.contract.instances import InstanceMethod
from everstep.optimizers.contract.spelling import advice

_PLAIN = (numbers.Number, str, bytes, type(u""), type(None))


class Configured(Declared(str("_Configured"), (object,), {})):  # type: ignore[misc]  # a metaclass call that Python 2 reads too
    """Base class of `Definition` and `Schedule`: an immutable object, built from its declared arguments."""

    kind = "object"  # the key of the class's name in a config
    keyword_only = ()  # type: tuple[str, ...]
    without_position = ()  # type: tuple[str, ...]  # added later: subclasses keep their positions
    _keywords = None  # type: str | None  # the name of the constructor's `**keywords`, if it has them
    hints = {}  # type: dict[str, str]  # {unknown argument: what to give instead}

    def __init__(self, *args, **kwargs):
        object.__setattr__(self, "_values", self._checked(args, kwargs))
        self._check()

    def _check(self):
        """Raises an error if the arguments do not fit each other."""

    def __setattr__(self, name, value):
        raise HyperValueError(
            "{0} cannot be changed once it is built, so {1} cannot be set; {0}(...).replace({1}=...) returns a changed "
            "copy".format(type(self).__name__, name)
        )

    @classmethod
    def argument_names(cls):
        """Returns the names of the constructor's arguments in order, keyword-only ones last."""
        names = [name for name in cls.declared_order if cls.declarations[name].is_argument]
        by_keyword = [name for name in cls.without_position + cls.keyword_only if name in names]
        return [name for name in names if name not in by_keyword] + by_keyword

    @classmethod
    def _shown_default(cls, name):
        """Returns what a signature shows as an argument's default."""
        return cls.declarations[name].default

    @classmethod
    def takes(cls, name):
        """Returns whether the constructor has an argument of this name."""
        return name in cls.argument_names()

    def _checked(self, args, kwargs):
        """Returns `{name: checked value}` of all arguments, defaults included."""
        owner = type(self).__name__
        names = self.argument_names()
        positional = [name for name in names if name not in self.without_position + self.keyword_only]
        if len(args) > len(positional):
            raise DefinitionError(
                "{} takes at most {} positional arguments ({}); got {}".format(
                    owner, len(positional), ", ".join(positional) or "none", len(args)
                )
            )
        arguments = OrderedDict(zip(positional, args))
        for name, value in kwargs.items():
            if name in arguments:
                raise DefinitionError("{} got {} twice".format(owner, name))
            if name not in names:
                hint = self.hints.get(name) or advice(name, owner, names)
                raise DefinitionError(
                    "{} has no argument {}; it takes {}{}".format(
                        owner, name, ", ".join(names) or "none", "; " + hint if hint else ""
                    )
                )
            arguments[name] = value
        values = OrderedDict()
        for name in names:
            declaration = self.declarations[name]
            if name in arguments:
                values[name] = declaration.check(owner, arguments[name])
            else:
                values[name] = self._default(name, values)
        return values

    def _default(self, name, values):
        """Returns the default of an argument. `values` are the arguments before it."""
        if self.declarations[name].default is REQUIRED:
            raise DefinitionError("{} needs {}".format(type(self).__name__, name))
        return self.declarations[name].default

    def _given(self):
        """Returns the arguments as one would write them: without keyword-only ones that have their default."""
        return OrderedDict(
            (name, value)
            for name, value in self._values.items()
            if name not in self.keyword_only or value != self._default(name, self._values)
        )

    @InstanceMethod
    def replace(self, **changes):
        """Returns a copy with some arguments changed.

        In a wrapper, `sparse` and `dense_ok` change the rules inside too. An argument that the wrapper does not have is
        that of the one definition inside that has it; if several have it, `definition.inner.replace(...)` says which.
        """
        return type(self)(**dict(self._given(), **self._with_settings(changes)))

    def _with_settings(self, changes):
        """Returns changes, and what else they change."""
        return changes

    # Immutable, so a copy is the object itself, with the same tensors and callables in it.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _rebuilt, (type(self), dict(self._given()))

    def _key(self):
        return once(self, "key", lambda: (type(self),) + comparable(tuple(self._values.items())))

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

    @InstanceMethod
    def get_config(self, strict=True):
        """Returns a dictionary of plain values, from which `from_config` builds an equal object.

        Args:
            strict: True (default) to raise an error for a value that is not plain (a tensor, a callable), False to
                leave it out.

        Raises:
            ConfigError: a value is not plain.
        """
        config = {self.kind: type(self).__name__, "module": type(self).__module__}
        for name, value in self._values.items():
            if isinstance(value, Configured):
                if strict or value._is_whole():
                    config[name] = value.get_config(strict)
            elif is_plain(value):
                config[name] = value
            elif strict:
                config[name] = self._plain(name)
        return config

    def _is_whole(self):
        """Returns whether a config that leaves out what is not plain still has it. Half a schedule would be another."""
        return True

    def _plain(self, name):
        """Returns an argument as a config has it. Raises ConfigError if it is not plain.

        Args:
            name: the argument's name.
        """
        value = self._values[name]
        if not is_plain(value):
            raise ConfigError(
                "{}.{} is {!r}, which cannot be written to a config; give a number or an everstep.Schedule".format(
                    type(self).__name__, name, value
                )
            )
        return value

    @classmethod
    def from_config(cls, config):
        """Returns the object that a config describes. Its class must be imported already.

        Args:
            config: a dictionary from `get_config`.

        Raises:
            ConfigError: it is no such dictionary, its class is not imported, or it has an unknown argument.
        """
        if not isinstance(config, dict) or cls.kind not in config:
            raise ConfigError(
                "the config of a {0} is a dictionary with the key {0!r}; got {1!r}".format(cls.kind, config)
            )
        configured_class = cls.named(config[cls.kind], config.get("module"))
        arguments = {}
        for name, value in config.items():
            if name in (cls.kind, "module"):
                continue
            if not configured_class.takes(name):
                raise ConfigError(
                    "{} has no argument {!r}; it takes {}".format(
                        configured_class.__name__, name, ", ".join(configured_class.argument_names())
                    )
                )
            arguments[name] = cls._from_plain(value)
        return configured_class(**arguments)

    @staticmethod
    def _from_plain(value):
        if isinstance(value, dict):
            for kind in Configured.__subclasses__():
                if kind.kind in value:
                    return kind.from_config(value)
        return value

    @classmethod
    def named(cls, name, module=None):
        """Returns the imported subclass of that name. `module` decides between several."""
        imported = cls.registered() + [cls]
        namesakes = [subclass for subclass in imported if subclass.__name__ == name]
        exact = [subclass for subclass in namesakes if subclass.__module__ == module]
        if exact or len(namesakes) == 1:
            return (exact or namesakes)[0]
        if namesakes:
            raise ConfigError(
                "the {} {!r} of the config is ambiguous: it is in {}, and when it was saved it was in {}".format(
                    cls.kind, name, " and ".join(subclass.__module__ for subclass in namesakes), module
                )
            )
        raise ConfigError(
            "no {} called {!r} is imported; import {} first. Known are: {}".format(
                cls.kind,
                name,
                module or "the module that defines it",
                ", ".join(subclass.__name__ for subclass in imported),
            )
        )

    @classmethod
    def registered(cls):
        """Returns all imported subclasses, sorted by name; of a class defined several times, the last."""
        newest, waiting = {}, list(cls.__subclasses__())
        while waiting:
            subclass = waiting.pop()
            waiting.extend(subclass.__subclasses__())
            key = subclass.__name__, subclass.__module__
            if key not in newest or newest[key].serial < subclass.serial:
                newest[key] = subclass
        return [newest[key] for key in sorted(newest)]


def once(configured, name, compute):
    """Returns `compute()`, cached under a name on a definition or schedule: every step asks for it."""
    cache = vars(configured).setdefault("_known", {})
    if name not in cache:
        cache[name] = compute()
    return cache[name]


def comparable(value):
    """Returns a value to compare by. One that is not plain, such as a tensor, equals only itself."""
    if isinstance(value, Configured):
        return value._key()
    if isinstance(value, tuple):
        return tuple([each if isinstance(each, _PLAIN) else comparable(each) for each in value])
    return value if isinstance(value, _PLAIN) else id(value)


def is_plain(value):
    """Returns whether the text of a value says all of it."""
    return all(map(is_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)


def _rebuilt(configured_class, arguments):
    """Builds a pickled object again."""
    return configured_class(**arguments)
