"""The operations of torch on lists of tensors, one for each variable: one launch on a device for many of them.

A value is such a list, a tensor of one element on the lists' device, or a number. https://pytorch.org/docs/main/torch.html
lists the `_foreach_*` functions; where torch has none, each tensor is computed by itself.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.rules.operations import TABLE

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_UNARY = {name: name for name in "abs sqrt exp log sin cos sign floor tanh sigmoid rsqrt".split()}
_UNARY["negative"] = "neg"
_TERMS = {"add_product": ("add", "multiply"), "subtract_product": ("subtract", "multiply"),
          "add_quotient": ("add", "divide")}


def _of_numbers(op):
    """Returns the function of numbers that computes an op."""
    if op in TABLE:
        return TABLE[op].numpy
    first, second = (TABLE[name].numpy for name in _TERMS[op])
    return lambda rest, a, b: first(rest, second(a, b))


def _list_first(spare, a, b):
    """Returns two values that may be exchanged, a list first: `spare`, if it is one of them."""
    return (b, a) if not isinstance(a, list) or spare is b and isinstance(b, list) else (a, b)


class Foreach(object):
    """Computes operations on lists of tensors.

    Args:
        torch: the module.
        ops: {op: function of tensors}, for what torch has no function of lists for.
        constant: a function of (number, tensor) that returns the number as a tensor on that one's device.
    """

    def __init__(self, torch, ops, constant):
        self.torch, self._ops, self._constant = torch, ops, constant
        self._functions = {  # type: dict[str, Any]
            "add": self._add, "subtract": self._subtract, "multiply": self._multiply, "divide": self._divide,
            "zeros_like": lambda spare, x: 0.0, "ones_like": lambda spare, x: 1.0,
            "pow": self._pow, "square": lambda spare, x: self._multiply(spare, x, x), "clip": self._clip,
            "where": self._where, "add_product": self._add_product, "add_quotient": self._add_quotient,
            "subtract_product": lambda spare, *values: self._add_product(spare, *values, sign=-1),
            "subtract_quotient": lambda spare, *values: self._add_quotient(spare, *values, sign=-1),
        }
        self._functions.update((op, self._unary(name)) for op, name in _UNARY.items() if self._has(name))
        for op in ("maximum", "minimum"):
            if self._has(op):
                self._functions[op] = self._extreme(op)

    def compute(self, op, values, options, spare=None, like=None):
        """Returns the result of an op, a list; in the memory of `spare`, one of the values, where torch can.

        Args:
            like: a tensor of the dtype that numbers have beside no other value.
        """
        if not any([isinstance(value, list) for value in values]):
            return self._one(op, values, options)
        function = None if options else self._functions.get(op)
        result = function(spare, *values) if function else None
        return self._one_by_one(op, values, options, like) if result is None else result

    def copy(self, value):
        return list(self.torch._foreach_mul(value, 1))

    def write(self, tensors, value):
        """Writes a list, or one number to all, to tensors."""
        if isinstance(value, list):
            if self._has("copy_"):
                self.torch._foreach_copy_(tensors, value)
                return
            for tensor, each in zip(tensors, value):  # torch 2.0
                tensor.copy_(each)
            return
        self.torch._foreach_zero_(tensors)
        if isinstance(value, self.torch.Tensor) or value:
            self.torch._foreach_add_(tensors, value)

    def _has(self, name):
        return hasattr(self.torch, "_foreach_" + name)

    def _run(self, name, spare, first, *others, **options):
        if spare is first:
            getattr(self.torch, "_foreach_{}_".format(name))(first, *others, **options)
            return first
        if len(first) == 1 and isinstance(spare, list):  # torch's function of tensors takes any memory for its result
            values = [other[0] if isinstance(other, list) else other for other in others]
            return [getattr(self.torch, name)(first[0], *values, out=spare[0], **options)]
        return list(getattr(self.torch, "_foreach_" + name)(first, *others, **options))

    def _one(self, op, values, options):
        tensors = [value for value in values if isinstance(value, self.torch.Tensor)]
        if not tensors:
            return _of_numbers(op)(*values, **options).item()
        return self._ops[op](*[self._of_tensor(value, tensors[0]) for value in values], **options)

    def _one_by_one(self, op, values, options, like):
        of_lists = [value for value in values if isinstance(value, list)]
        like = next((each[0] for each in of_lists if each[0].dtype is not self.torch.bool), like)
        lists = [v if isinstance(v, list) else [self._of_tensor(v, like)] * len(of_lists[0]) for v in values]
        return [self._ops[op](*each, **options) for each in zip(*lists)]

    def _of_tensor(self, value, like):
        return value if isinstance(value, self.torch.Tensor) else self._constant(value, like)

    def _unary(self, name):
        return lambda spare, x: self._run(name, spare, x)

    def _extreme(self, name):
        def function(spare, a, b):
            a, b = _list_first(spare, a, b)
            if len(a) == 1 and spare is not a and not isinstance(b, (list, self.torch.Tensor)):
                return [self.torch.clamp(a[0], **{"min" if name == "maximum" else "max": b})]
            return None if isinstance(b, self.torch.Tensor) else self._run(name, spare, a, b)

        return function

    def _where(self, spare, condition, yes, no):
        if isinstance(condition, (list, self.torch.Tensor)):
            return None
        return yes if condition else no

    def _add(self, spare, a, b):
        return self._run("add", spare, *_list_first(spare, a, b))

    def _subtract(self, spare, a, b):
        if isinstance(a, list):
            return self._run("sub", spare, a, b) if not isinstance(b, self.torch.Tensor) else self._run(
                "add", spare, a, b, alpha=-1)
        negated = self._run("neg", spare, b)
        return self._run("add", negated, negated, a)

    def _multiply(self, spare, a, b):
        return self._run("mul", spare, *_list_first(spare, a, b))

    def _divide(self, spare, a, b):
        if not isinstance(a, list):
            inverse = self._run("reciprocal", spare, b)
            return self._run("mul", inverse, inverse, a)
        if isinstance(b, self.torch.Tensor):
            return self._run("mul", spare, a, 1 / b)
        return self._run("div", spare, a, b)

    def _pow(self, spare, a, b):
        if isinstance(a, self.torch.Tensor) or isinstance(b, self.torch.Tensor) or not self._has("pow"):
            return None
        return self._run("pow", spare, a, b) if isinstance(a, list) else list(self.torch._foreach_pow(a, b))

    def _clip(self, spare, x, low, high):
        above = self.compute("maximum", (x, low), {}, spare)
        return self.compute("minimum", (above, high), {}, above)

    def _add_product(self, spare, rest, a, b, sign=1):
        if isinstance(a, list) and isinstance(b, list) and isinstance(rest, list):
            return self._run("addcmul", spare, rest, a, b, value=sign)
        if not isinstance(a, list):
            a, b = b, a
        if isinstance(a, list) and isinstance(rest, list) and not isinstance(b, (list, self.torch.Tensor)):
            if spare is a and rest is not a and len(a) > 1:
                return self._run("add", a, self._run("mul", a, a, sign * b), rest)
            return self._run("add", spare, rest, a, alpha=sign * b)
        product = self.compute("multiply", (a, b), {})
        function = self._add if sign > 0 else self._subtract
        return function(spare if spare is rest else product, rest, product)

    def _add_quotient(self, spare, rest, a, b, sign=1):
        if isinstance(a, list) and isinstance(b, list) and isinstance(rest, list):
            return self._run("addcdiv", spare, rest, a, b, value=sign)
        quotient = self.compute("divide", (a, b), {})
        function = self._add if sign > 0 else self._subtract
        return function(spare if spare is rest else quotient, rest, quotient)
