"""`everstep.patched`: other code that names its optimizer trains with ours."""
from __future__ import absolute_import, division, print_function

import contextlib
import threading

from everstep.compat.stock.from_native import BESIDE
from everstep.compat.stock.lookup import constructor_of, entries_of
from everstep.compat.targets import native_classes
from everstep.compat.targets.detect import find_class
from everstep.errors import DefinitionError, TargetError
from everstep.optimizers.contract import Definition

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_in_force = {}  # {class: [functions that make an optimizer in its place]}; the last one counts
_here = threading.local()  # classes: those that a replacement of this thread is being called for


@contextlib.contextmanager
def patched(module, **replacements):
    """Makes optimizer classes return optimizers of everstep inside a `with` block, for code that names its optimizer.

        with everstep.patched(tf.train, AdamOptimizer=everstep.optimizers.DiffGrad):
            model = A2C("MlpPolicy", env)   # whose code says tf.train.AdamOptimizer(learning_rate, epsilon=1e-5)

    The class itself is changed, so it does not matter how code gets at it: by names that were imported before, names in
    other modules, `"adam"` and configs in Keras, or default arguments. Subclasses do not change. Blocks can be nested;
    the innermost one decides. When the last one ends, even by an exception, the class makes stock optimizers again.

    Args:
        module: a module with optimizer classes, such as `tf.train`, `tf.keras`, `keras` or one of your own.
        **replacements: the name of a class, and one of:

            * a definition class. It gets the arguments of the call that it knows, by name or as the stock table maps
              them (`beta1` is `beta_1`), and its own defaults for the others. `name`, `clipnorm` and other native
              keywords are passed to `bind`.
            * a definition, used as it is, whatever the arguments of the call.
            * a function, called with the arguments of the call. It returns a definition or a bound optimizer. While it
              runs, the class makes stock optimizers.

    Raises:
        TargetError: there is no such class, or it is no optimizer class that everstep can replace.
        DefinitionError: there is no replacement, or one is none of the above. While the block runs: the definition
            class does not know an argument of the call, or the function returned something else.
    """
    if not replacements:
        raise DefinitionError(
            "patched replaces the classes that it is given: everstep.patched(module, Adam=everstep.optimizers.AdamW)"
        )
    makers = [(_named(module, name), name, replacement) for name, replacement in replacements.items()]
    makers = [(stock, _maker(module, stock, name, replacement)) for stock, name, replacement in makers]
    begun = []
    try:
        for stock, make in makers:
            _intercept(stock)
            _in_force[stock].append(make)
            begun.append((stock, make))
        yield
    finally:
        for stock, make in begun:
            _in_force[stock].remove(make)


def _named(module, name):
    """Returns the class of a name in a module, or in its `optimizers`."""
    for holder in (module, getattr(module, "optimizers", None)):
        if isinstance(getattr(holder, name, None), type):
            return getattr(holder, name)
    raise TargetError("{} has no class {}".format(getattr(module, "__name__", repr(module)), name))


def _maker(module, stock, name, replacement):
    """Returns a function of a call's arguments that returns the optimizer."""
    api = None if hasattr(stock, "definition_class") else find_class(stock, module)
    if api is None or stock is api.base:
        raise TargetError(
            "{} is not the class of an optimizer that can be replaced; give the name of one such as "
            "AdamOptimizer".format(name)
        )
    if isinstance(replacement, type) and issubclass(replacement, Definition):
        return lambda *args, **kwargs: _called(api, stock, replacement, args, kwargs)
    if isinstance(replacement, Definition):
        return lambda *args, **kwargs: _bound(api, replacement)
    if not callable(replacement):
        raise DefinitionError(
            "{} is replaced by a definition, a class of definitions or a function; got {!r}".format(name, replacement)
        )

    def make(*args, **kwargs):
        optimizer = replacement(*args, **kwargs)
        if isinstance(optimizer, Definition):
            return _bound(api, optimizer)
        if isinstance(optimizer, stock) or not isinstance(optimizer, api.base):
            raise DefinitionError(
                "the function in place of {} must return a definition or a bound optimizer; it returned {!r}".format(
                    name, optimizer
                )
            )
        return optimizer

    return make


def _bound(api, definition):
    return _native_class(api, type(definition)).from_definition(definition)


def _native_class(api, definition_class):
    native_class = api.native_class(definition_class)
    native_classes.register(native_class)
    return native_class


def _called(api, stock, definition_class, args, kwargs):
    """Returns the optimizer of a definition class for a call of a stock class."""
    names, defaults = constructor_of(stock)
    if len(args) > len(names):
        raise DefinitionError("{} got {} arguments without a name; name them".format(stock.__name__, len(args)))
    given = dict(zip(names, args), **kwargs)
    entry = next((each for each in entries_of(api.target.name) if each.native == stock.__name__), None)
    ours = dict({"lr": "learning_rate"}, **(entry.names if entry else {}))  # type: dict[str, str]
    known, arguments = definition_class.argument_names(), {}  # type: Any, dict[str, Any]
    for name, value in given.items():
        own_name = ours.get(name) or name
        if own_name in known:
            arguments[own_name] = value
        elif value is None or name in BESIDE and not value or _equal(value, defaults.get(name)):
            continue  # as if it was not given
        elif name in ours:
            raise DefinitionError(
                "{0} was called with {1}={2!r}, which {3} does not have; give a function of the arguments: "
                "{0}=lambda {1}, **others: ...".format(stock.__name__, name, value, definition_class.__name__)
            )
        else:
            arguments[name] = value  # a native keyword
    return _native_class(api, definition_class)(**arguments)


def _equal(value, default):
    return type(value) is type(default) and isinstance(value, (bool, int, float, str)) and value == default


def _intercept(stock):
    """Gives a class a `__new__` that asks `_in_force`. It stays: no Python forgets one that was taken away again."""
    if stock in _in_force:
        return
    _in_force[stock] = []
    stock_new = stock.__new__

    def __new__(cls, *args, **kwargs):
        running = vars(_here).setdefault("classes", [])
        if cls is stock and _in_force[stock] and stock not in running:
            running.append(stock)
            try:
                return _in_force[stock][-1](*args, **kwargs)
            finally:
                running.remove(stock)
        return stock_new(cls) if stock_new is object.__new__ else stock_new(cls, *args, **kwargs)

    vars(__new__)["__wrapped__"] = stock.__init__  # for inspect.signature
    stock.__new__ = staticmethod(__new__)
