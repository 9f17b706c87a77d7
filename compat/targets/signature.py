"""The signature of a native class, for `help`, `inspect.signature` and editors."""
from __future__ import absolute_import, division, print_function

import inspect

from everstep.optimizers.contract.signature import parameters


class NativeSignature(object):
    """Stands as `__signature__` in a native class and makes its signature when asked for.

    It has the definition's arguments, then the native base class's own: those of `start` and of the base's
    constructor. It ends in `**native` where that has `**kwargs`.
    """

    def __get__(self, instance, owner):
        # A subclass with a constructor has its own signature.
        constructor = next(vars(base)["__init__"] for base in owner.__mro__ if "__init__" in vars(base))
        shipped = getattr(constructor, "__module__", "").startswith("everstep.")
        if instance is not None or not shipped or not hasattr(inspect, "Signature"):
            raise AttributeError("__signature__")
        listed = parameters(owner.definition_class)
        refused = {item.what for item in owner.adapter_class.unsupported}
        refused.update(owner.definition_class.hints, ["learning_rate"])
        refused.update(each.name for each in listed)
        native, open_ended = _native(owner, refused)
        if listed and listed[-1].kind == inspect.Parameter.VAR_KEYWORD:  # any name, which takes in the native ones
            return inspect.Signature(listed[:-1] + native + listed[-1:])
        if open_ended:
            native.append(inspect.Parameter("native", inspect.Parameter.VAR_KEYWORD))
        return inspect.Signature(listed + native)


def _native(owner, refused):
    """Returns (the keyword-only parameters of the native base, whether it may take others)."""
    keywords, open_ended = {}, True
    # Some bases hand all that they are given to the class above them.
    constructors = [vars(base)["__init__"] for base in owner.native_base.__mro__[:-1] if "__init__" in vars(base)]
    for function in [owner.adapter_class.start] + constructors:
        try:
            listed = list(inspect.signature(function).parameters.values())[1:]
        except (TypeError, ValueError):  # one written in C may have none
            break
        for each in listed:
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name not in refused:
                default = None if each.default is each.empty else each.default
                keywords.setdefault(each.name, each.replace(kind=each.KEYWORD_ONLY, default=default))
        open_ended = any(each.kind == each.VAR_KEYWORD for each in listed)
        is_native = function is not owner.adapter_class.start
        if not open_ended or is_native and any(each.kind == each.POSITIONAL_OR_KEYWORD for each in listed):
            break
    if owner.adapter_class.takes_gradients:
        keywords["gradients"] = inspect.Parameter("gradients", inspect.Parameter.KEYWORD_ONLY, default=None)
    return [keywords[name] for name in sorted(keywords)], open_ended
