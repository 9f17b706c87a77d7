"""Finds definitions by name: `everstep.get` and `everstep.names`."""
from __future__ import absolute_import, division, print_function

import difflib
import re

from everstep.compat.stock.composed import COMPOSED
from everstep.compat.stock.from_native import from_native
from everstep.compat.stock.lookup import entries_of, installed_defaults, target_named
from everstep.compat.stock.table import STOCK, UNSUPPORTED
from everstep.compat.stock.third_party import OTHERS
from everstep.compat.targets.construction import CONFIG_KEY, split_config
from everstep.compat.targets.detect import TARGETS
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import ConfigError, DefinitionError, UnsupportedError
from everstep.optimizers.contract import Definition
from everstep.optimizers.contract.checks import TEXT

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_ENTRIES = STOCK + tuple(OTHERS.values())
_BASES = ("Composite", "Wrapper", "Undecayed")  # of wrappers, and what the engine makes of a definition


def get(identifier, api=None, **arguments):
    # type: (Any, Any, **Any) -> Definition
    """Returns the definition that a name, a config or an optimizer stands for.

    Upper and lower case, underscores, hyphens and spaces make no difference in a name, and the ending "Optimizer" can
    be left out. A name is looked up in this order:

    1. definitions (`names()` lists them), with everstep's own defaults: "adamw", "RMSprop", "schedule_free_adamw";
    2. stock optimizers whose name tells the API, with that class's form, defaults and treatment of sparse gradients:
       "AdamOptimizer", "momentum", "AddSign"; also those of TensorFlow Addons, Transformers ("AdamWeightDecay") and
       BERT ("AdamWeightDecayOptimizer").

    Args:
        identifier: a name; a config, `{"class_name": ..., "config": {...}}` as of `keras.optimizers.serialize`, or from
            `Definition.get_config()`; a definition class; a definition, which is returned as it is; or a stock or bound
            optimizer, as for `from_native`.
        api: the module, such as `tf.keras`, to take the stock optimizer of that module, with the defaults of the
            installed version (epsilon was 1e-8 before Keras 2.1.3). Or the name of its target. Default: the name
            decides which API it is, or that it is everstep's own definition. A config that a stock optimizer wrote
            needs `api`.
        **arguments: arguments of the definition, or of the stock class; `sparse` and `dense_ok` too.

    Returns:
        A definition.

    Raises:
        ConfigError: the name is unknown, the config is incomplete, or api is no module. The message has close names.
        DefinitionError: an argument is unknown.
        UnsupportedError: no definition computes what this stock optimizer does.

    >>> import everstep
    >>> everstep.get("adamw", learning_rate=0.01, sparse="rows").weight_decay
    0.004
    >>> everstep.get("AdamOptimizer", beta1=0.8).epsilon    # of tf.train
    1e-08
    >>> everstep.get({"class_name": "Adam", "config": {"learning_rate": 0.01}}).learning_rate
    0.01
    """
    if not (api is None or isinstance(api, TEXT) or hasattr(api, "__name__")):
        raise ConfigError(
            "api is a module, such as tf.keras, or the name of a target; got {!r}. Arguments of the optimizer have "
            "their names here: everstep.get({!r}, learning_rate=...)".format(api, identifier)
        )
    if isinstance(identifier, Definition):
        return identifier.replace(**arguments) if arguments else identifier
    if isinstance(identifier, type) and issubclass(identifier, Definition):
        return identifier(**arguments)
    if isinstance(identifier, dict):
        definition = _of_config(identifier, api)
        return definition.replace(**arguments) if arguments else definition
    if isinstance(identifier, TEXT):
        composed = find_composed(identifier) if api is None else None
        if composed is not None:
            return composed(**arguments)
        definition_class, entry = find_name(identifier, api)
        return definition_class(**arguments) if entry is None else _of_entry(entry, arguments, api)
    if isinstance(identifier, NativeOptimizer) or any(target.speaks(type(identifier)) for target in TARGETS):
        definition = from_native(identifier)
        return definition.replace(**arguments) if arguments else definition
    raise ConfigError(
        "everstep.get takes a name, a config, a definition or an optimizer; got {!r}. everstep.names() lists "
        "names".format(identifier)
    )


def names():
    # type: () -> list[str]
    """Returns the names of all definitions that `get` finds, your own included, but those that begin with "_".

    Wrappers are functions of everstep.

    Returns:
        A sorted list.

    Raises:
        Nothing.

    >>> import everstep
    >>> [name for name in everstep.names() if name.startswith("Ada")][:3]
    ['AdaBelief', 'AdaBound', 'Adadelta']
    """
    public = [name for name in definition_classes() if not name.startswith("_")]
    return sorted(public, key=lambda name: (name.lower(), name))


def definition_classes():
    """Returns `{name: [classes]}` of all imported definitions but wrappers, and those that the engine uses."""
    classes = {}
    for each in Definition.registered():
        is_inside = each.__module__.startswith("everstep.compat.")
        if each.family != "wrappers" and each.__name__ not in _BASES and not is_inside:
            classes.setdefault(each.__name__, []).append(each)
    return classes


def spelled(name):
    """Returns a name in lower case, without anything but letters and digits."""
    return re.sub("[^a-z0-9]", "", str(name).lower())


def entries_spelled(entries, name):
    """Returns the entries of the stock table that a name means: those spelled so, else those so but "Optimizer"."""
    wanted = spelled(name)
    exact = [entry for entry in entries if spelled(entry.native) == wanted]
    return exact or [entry for entry in entries if _stem(entry.native) == _stem(wanted)]


def _stem(name):
    name = spelled(name)
    return name[: -len("optimizer")] if name.endswith("optimizer") else name


def check_known(name):
    """Raises a ConfigError with close names if neither a definition nor a stock optimizer has the name."""
    known = list(definition_classes()) + list(COMPOSED) + [entry.native for entry in _ENTRIES] + list(UNSUPPORTED)
    if _stem(name) not in map(_stem, known):
        raise ConfigError(unknown(name, known))


def find_name(name, api=None):
    """Returns (definition class, entry of the stock table or None) that a name means.

    Raises:
        ConfigError: no definition and no stock optimizer has the name, or several stock optimizers that differ.
        UnsupportedError: it is a stock optimizer that no definition computes.
    """
    name = str(name).split(">")[-1]  # a package, as in "everstep>Adam"
    if api is not None:
        entry = _entry_of_api(name, target_named(api))
        return entry.definition, entry
    wanted, known = spelled(name), definition_classes()
    for spelling in (name, wanted):
        same = [each for each in known if spelling in (each, spelled(each))]
        if same:
            return _only(known[same[0]]), None
    entries = entries_spelled(_ENTRIES, name)
    if len(set(entry.target for entry in entries)) > 1:
        raise ConfigError(
            "{} have stock optimizers called {!r} that compute different things; say which you mean with api=".format(
                " and ".join(entry.target for entry in entries), name
            )
        )
    if entries:
        return entries[0].definition, entries[0]
    for unsupported, reason in UNSUPPORTED.items():
        if _stem(unsupported) == _stem(wanted):
            raise UnsupportedError("everstep has no definition for {}: {}".format(unsupported, reason))
    raise ConfigError(unknown(name, list(known) + list(COMPOSED) + [entry.native for entry in _ENTRIES]))


def find_composed(name):
    """Returns the function that makes the definition and wrapper that a name means, or None."""
    if spelled(name) in map(spelled, definition_classes()):
        return None
    return next((make for known, make in COMPOSED.items() if spelled(known) == spelled(name.split(">")[-1])), None)


def _only(classes):
    if len(classes) > 1:
        raise ConfigError("there are several definitions called {}, in {}: give the class itself".format(
            classes[0].__name__, " and ".join(each.__module__ for each in classes)))
    return classes[0]


def unknown(name, known):
    """Returns the message for an unknown name, with close ones."""
    by_spelling = {spelled(each): each for each in reversed(known)}
    close = [by_spelling[each] for each in difflib.get_close_matches(spelled(name), sorted(by_spelling), 3, 0.7)]
    wrapper = [each.__name__ for each in Definition.registered() if spelled(each.__name__) == spelled(name)]
    if wrapper:
        return "{} is a wrapper, made of another definition; see `everstep show {}`".format(name, wrapper[0])
    return "there is no definition called {!r}{} everstep.names() and `everstep list` list them".format(
        name, "; did you mean {}?".format(" or ".join(close)) if close else "."
    )


def _entry_of_api(name, target):
    entries = entries_spelled(entries_of(target), name)
    if entries:
        return entries[0]
    if name in UNSUPPORTED:
        raise UnsupportedError("everstep has no definition for {}: {}".format(name, UNSUPPORTED[name]))
    raise ConfigError("{} has no stock optimizer {!r}; it has {}. Leave out api= for everstep's own".format(
        target, name, ", ".join(sorted(entry.native for entry in entries_of(target)))))


def _of_entry(entry, arguments, api=None):
    """Returns the definition of a stock optimizer. Arguments have the names of the stock class, or everstep's."""
    ours = {entry.names[theirs]: theirs for theirs in entry.names}
    theirs, options, sparse = {}, dict(arguments), arguments.get("sparse")
    options.pop("sparse", None)
    for name in list(options):
        stock_name = name if name in entry.names else ours.get(name)
        if stock_name in theirs:
            raise DefinitionError("{} got {} twice, as {} too".format(entry.native, stock_name, name))
        if stock_name is not None:
            theirs[stock_name] = options.pop(name)
    definition = entry.make(dict(installed_defaults(entry, api), **theirs), **options)
    return definition if sparse is None else definition.replace(sparse=sparse)


def _of_config(config, api):
    """Returns the definition that a config describes: one that everstep, Keras or a stock optimizer wrote."""
    if Definition.kind in config:
        return Definition.from_config(config)
    settings = config.get("config", {})
    if "class_name" not in config or not isinstance(settings, dict):
        raise ConfigError(
            "a config is {{'class_name': 'Adam', 'config': {{...}}}}, or from Definition.get_config(); got the keys "
            "{}".format(", ".join(sorted(map(str, config))) or "none")
        )
    if CONFIG_KEY in settings:
        definition, native = split_config(settings)
        set_beside = sorted(name for name, value in native.items() if name in _CHANGES_STEPS and value)
        if set_beside:
            raise ConfigError("the optimizer of this config was bound with {}, which no definition has; use wrappers "
                              "instead, such as everstep.clip".format(", ".join(set_beside)))
        return definition
    composed = find_composed(config["class_name"])
    if composed is not None and api is None:
        return composed(**settings)
    if api is not None:
        return from_native(dict(config, config=settings), api)
    definition_class, entry = find_name(config["class_name"])
    if entry is not None:
        return _of_entry(entry, settings)
    foreign = sorted(set(settings) - set(definition_class.argument_names()))
    if foreign:
        raise ConfigError(
            "{} has no argument {}. If a stock optimizer wrote this config, say of which API: api=tf.keras, or another "
            "module".format(definition_class.__name__, ", ".join(foreign))
        )
    return definition_class(**settings)


# Native keywords of `bind` that change steps.
_CHANGES_STEPS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay", "use_ema", "loss_scale_factor",
                  "gradient_accumulation_steps")
