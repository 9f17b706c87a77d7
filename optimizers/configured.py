"""Values with declared settings: how definitions and schedules are built, compared, shown, copied and saved."""
from __future__ import absolute_import, division, print_function

import numbers
from collections import OrderedDict

from everstep.errors import ConfigError, DefinitionError
from everstep.optimizers.declarations import Declared

_PLAIN = (numbers.Number, str, bytes, type(u""), bool, type(None), tuple)


class Configured(Declared(str("_Configured"), (object,), {})):  # type: ignore[misc]  # a metaclass call that Python 2 reads too
    """Base of `Definition` and `Schedule`: immutable, built from its declared arguments."""

    kind = "object"  # the key that names the class in a config
    keyword_only = ()  # type: tuple[str, ...]

    def __init__(self, *args, **kwargs):
        self._values = self._checked(args, kwargs)

    @classmethod
    def argument_names(cls):
        """The constructor's arguments in order."""
        names = [name for name in cls.declared_order if cls.declarations[name].is_argument]
        return [n for n in names if n not in cls.keyword_only] + [n for n in names if n in cls.keyword_only]

    def _checked(self, args, kwargs):
        owner = type(self).__name__
        names = self.argument_names()
        positional = [name for name in names if name not in self.keyword_only]
        if len(args) > len(positional):
            raise DefinitionError(
                "{} takes at most {} positional arguments ({}); got {}".format(
                    owner, len(positional), ", ".join(positional), len(args)
                )
            )
        given = OrderedDict(zip(positional, args))
        for name, value in kwargs.items():
            if name in given:
                raise DefinitionError("{} got {} twice".format(owner, name))
            if name not in names:
                raise DefinitionError("{} has no argument {}; it takes {}".format(owner, name, ", ".join(names)))
            given[name] = value
        values = OrderedDict()
        for name in names:
            declaration = self.declarations[name]
            if name not in given and declaration.required:
                raise DefinitionError("{} needs {}".format(owner, name))
            values[name] = declaration.check(owner, given[name]) if name in given else self._default(name, values)
        return values

    def _default(self, name, values):
        return self.declarations[name].default

    def replace(self, **changes):
        """A copy with some arguments changed."""
        return type(self)(**dict(self._values, **changes))

    def _key(self):
        def plain(value):
            if isinstance(value, Configured):
                return value._key()
            return value if isinstance(value, _PLAIN) else id(value)

        return (type(self),) + tuple((name, plain(value)) for name, value in self._values.items())

    def __eq__(self, other):
        return isinstance(other, Configured) and self._key() == other._key()

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self._key())

    def _arguments(self):
        """The arguments as one would write them, those left at a keyword-only default left out."""
        return ", ".join(
            "{}={}".format(name, value._short() if isinstance(value, Configured) else repr(value))
            for name, value in self._values.items()
            if name not in self.keyword_only or value != self.declarations[name].default
        )

    def _short(self):
        return "{}({})".format(type(self).__name__, self._arguments())

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
            elif isinstance(value, _PLAIN):
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
            raise ConfigError("a {0} config is a dictionary with the key {0!r}; got {1!r}".format(cls.kind, config))
        made = cls.named(config[cls.kind], config.get("module"))
        arguments = {}
        for name, value in config.items():
            if name in (cls.kind, "module"):
                continue
            if name not in made.argument_names():
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
        known = [found for found in cls.registered() if found.__name__ == name]
        exact = [found for found in known if found.__module__ == module]
        if len(exact) == 1 or len(known) == 1:
            return (exact or known)[0]
        raise ConfigError(
            "{} {!r}: {} classes of that name are imported. Import the module that defines it first{}. Known: {}".format(
                cls.kind,
                name,
                len(known) or "no",
                " ({})".format(module) if module else "",
                ", ".join(sorted({found.__name__ for found in cls.registered()})),
            )
        )

    @classmethod
    def registered(cls):
        """All imported subclasses, in the order of their names."""
        found, waiting = set(), list(cls.__subclasses__())
        while waiting:
            made = waiting.pop()
            if made not in found:
                found.add(made)
                waiting.extend(made.__subclasses__())
        return sorted(found, key=lambda made: (made.__name__, made.__module__))
