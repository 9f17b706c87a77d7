"""The verbs of the backends on torch for lists of variables: see compat/engine/grouped.py.

They write the tensors of variables in place. A verb takes and returns lists of tensors, one for each variable.
"""
from __future__ import absolute_import, division, print_function

import functools
import importlib
import math

from everstep.compat.backends.ops_table import ops_table
from everstep.compat.backends.torch_foreach import Foreach
from everstep.compat.rules.operations import TABLE

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

BLOCK = 2**17  # elements that a thread computes at a time, so that all values of a block stay in its processor's cache
JOIN = 2**14  # elements; joining a larger tensor with others takes longer than computing it alone
MOST_CONSTANTS = 1000  # numbers that are kept as tensors
LAUNCH = 2**24  # elements of a block on other devices, where launching an operation costs more than moving memory


class TorchLists(object):
    """Computes on blocks: parts of a large tensor, or several small tensors joined.

    Args:
        variable: the class of all Keras variables; None for tensors of torch, each of which is its own variable.
    """

    # Ops with results in new memory, or in that of an operand.
    fresh = frozenset(name for name, each in TABLE.items() if each.fresh).union(
        ["add_product", "subtract_product", "add_quotient"])

    def __init__(self, variable):
        import torch

        self.torch = torch
        if variable is None:
            self._held = lambda tensor: tensor
            self._in_stateless_scope = lambda: False  # type: Any
        else:
            self._held = lambda variable: getattr(variable, "_value", None)  # under autocast, `value` may be a copy
            self._in_stateless_scope = getattr(importlib.import_module(variable.__module__), "in_stateless_scope", None)
        special = {"cast": lambda x, to: x.to(getattr(torch, to)), "equal": torch.eq, "where": self._where}
        special["transpose"] = lambda x, axes=None: x.permute(axes or tuple(range(x.dim()))[::-1])
        self.ops = ops_table(torch, {}, special)
        self.ops.update(
            add_product=torch.addcmul,
            subtract_product=functools.partial(torch.addcmul, value=-1),
            add_quotient=torch.addcdiv,
        )
        self._constants = {}
        self._working = {}  # {(kernel, dtype, device): whether the kernel computes there the same as on the CPU}
        self._numbers = {}  # {id of a tensor: (the tensor, its version, its number or None)}
        self.foreach = Foreach(torch, self.ops, self._like)
        self._kernels = {
            operation: getattr(self, "_" + operation)
            for operation, function in _NEEDED.items()
            if self._is_on_processors(function)
        }

    def _is_on_processors(self, name):
        """Returns whether torch has a function of processors: before 2.4 the fused ones are of CUDA only."""
        of_operator = self.torch._C._dispatch_has_kernel_for_dispatch_key
        return hasattr(self.torch, name) and of_operator("aten::" + name, "CPU")

    def _constant(self, number, dtype, device):
        """Returns a number as a tensor: the same at each call."""
        key = number, dtype, str(number), device  # 0.0 and -0.0 are equal
        if key not in self._constants:
            if len(self._constants) >= MOST_CONSTANTS:  # a rate that a scheduler sets is another number at each step
                self._constants.clear()
            self._constants[key] = self.torch.tensor(number, dtype=dtype, device=device)
        return self._constants[key]

    def _like(self, number, tensor):
        return self._constant(number, tensor.dtype, tensor.device)

    def number(self, value, changes=False):
        """Returns the number of a step-wide value: a number, tensor or variable. None if only its device knows it.

        A far variable is read when it was set since the last step, or one step later if it `changes` often, as a rate
        does: a rate that is set at each step is never read, for to read is to wait for the device.
        """
        tensor = getattr(value, "_value", value)
        if not isinstance(tensor, self.torch.Tensor):
            return float(tensor) if isinstance(tensor, (float, int)) else None
        if not self.is_far([tensor]):
            return tensor.item()
        if tensor is value:
            return None
        _, version, number = self._numbers.get(id(tensor), (tensor, None, None))
        is_new = version != tensor._version
        if is_new and version is not None and changes:
            number = None
        elif is_new or number is None:
            number = tensor.item()
        # holds the tensor, so that no other one gets its id
        self._numbers[id(tensor)] = tensor, tensor._version, number
        return number

    def knows(self, value):
        """Returns whether the number of a step-wide value is there without to wait for its device."""
        tensor = getattr(value, "_value", value)
        if not isinstance(tensor, self.torch.Tensor) or not self.is_far([tensor]):
            return True
        _, version, number = self._numbers.get(id(tensor), (tensor, None, None))
        return number is not None and version == tensor._version

    def move(self, counter, by):
        """Adds a number to a counter's variable, in place."""
        [tensor], number = self.tensors([counter]), self.number(counter)
        tensor.add_(by)
        if self.is_far([tensor]):
            self._numbers[id(tensor)] = tensor, tensor._version, number + by

    @staticmethod
    def is_far(tensors):
        """Returns whether tensors lie where launching an operation costs more than computing it."""
        return tensors[0].device.type != "cpu"

    def _where(self, condition, yes, no):
        if condition.dim() or condition.device.type != "cpu":
            return self.torch.where(condition, yes, no)
        return yes if bool(condition) else no  # torch.where takes five times as long as a copy

    def total(self, tensors, squares):
        """Returns the sum over all elements of tensors, or of their squares, in float32."""
        if squares and self.is_far(tensors):
            sums = self.torch.stack(self.torch._foreach_norm(tensors)).square()
        else:
            sums = self.torch.stack([(each.square() if squares else each).sum() for each in tensors])
        return sums.sum().to(self.torch.float32)

    # Blocks.

    def blocks(self, tensors, whole=False):
        """Divides tensors of one device into blocks. `whole`: each tensor is one.

        Returns:
            A list of blocks. A block is a list of (place in `tensors`, first element, number of elements).
        """
        limit = LAUNCH if tensors[0].device.type != "cpu" else BLOCK * self.torch.get_num_threads()
        if whole:
            return [[(place, 0, tensor.numel())] for place, tensor in enumerate(tensors)]
        blocks, joined, room = [], [], 0  # type: tuple[list, list, int]
        for place, tensor in enumerate(tensors):
            size = tensor.numel()
            length = -(-size // max(1, -(-size // limit)))
            for start in range(0, size, length or 1):
                count = min(length, size - start)
                if size > min(JOIN, limit):
                    blocks.append([(place, start, count)])
                    continue
                if count > room:
                    joined, room = [], limit
                    blocks.append(joined)
                joined.append((place, start, count))
                room -= count
        return blocks

    @staticmethod
    def detached(tensors):
        return [tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]

    def flat(self, tensors):
        """Returns the tensors as vectors that share their memory."""
        return [tensor if tensor.dim() == 1 else tensor.view(-1) for tensor in self.detached(tensors)]

    @staticmethod
    def cut(vectors, block):
        """Returns the parts of the vectors in a block, which share their memory."""
        whole = [(vectors[place], start, count) for place, start, count in block]
        return [x if count == x.numel() else x.narrow(0, start, count) for x, start, count in whole]

    def join(self, parts):
        """Returns the values of parts as one vector. It may share the memory of a single part."""
        return parts[0] if len(parts) == 1 else self.torch.cat(parts)

    def split(self, parts, value):
        """Returns the values of the joined parts, one for each: of a list of a vector, or of a single value."""
        value, like = value[0] if isinstance(value, list) else value, parts[0]
        value = value if isinstance(value, self.torch.Tensor) else self._like(value, like)
        sizes = [part.numel() for part in parts]
        if value.dtype is not like.dtype or value.dim() == 0:
            value = value.to(like.dtype).expand(sum(sizes))
        return [value] if len(parts) == 1 else list(value.split(sizes))

    def decay(self, tensors, share):
        """Subtracts a share of each tensor from it."""
        self.torch._foreach_mul_(tensors, 1 - share)

    # Tensors of variables.

    def tensors(self, variables):
        """Returns the tensors that hold the variables' values; None if they cannot be written in place now."""
        if self._in_stateless_scope is None or self._in_stateless_scope():
            return None
        tensors = [self._held(variable) for variable in variables]
        return None if any(tensor is None for tensor in tensors) else tensors

    def add(self, variable, value):
        """Adds a value to a variable in place. Returns False, and does nothing, where that is not possible."""
        tensors, alike = self.tensors([variable]), False
        if tensors and isinstance(value, self.torch.Tensor) and tensors[0].is_floating_point():
            alike = value.dtype is tensors[0].dtype and value.shape == tensors[0].shape
        if not alike or self.memory(tensors) & self.memory([value]):
            return False
        tensors[0].detach().add_(value)
        return True

    def surely_fits(self, grad, variable):
        """Returns whether this is the usual gradient of a variable, which needs no other check."""
        value = self._held(variable)
        if value is None or type(grad) is not self.torch.Tensor:
            return False
        like = grad.dtype is value.dtype and grad.layout is value.layout and grad.shape == value.shape
        return like and grad.is_floating_point()

    @staticmethod
    def places(tensors):
        """Returns where tensors are in memory. Equal places: the same memory, in the same order of elements."""
        return [(tensor.data_ptr(), tensor.is_contiguous()) for tensor in tensors]

    def are_separate(self, tensors):
        """Returns whether each of the tensors is contiguous, and none shares memory with another."""
        if not all(tensor.layout is self.torch.strided and tensor.is_contiguous() for tensor in tensors):
            return False
        spans = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors if t.numel())
        return all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))

    @staticmethod
    def memory(tensors):
        """Returns the set of the memory that tensors lie in."""
        return {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def gradients(self, grads, tensors, written):
        """Returns gradients like the tensors, which stay as they are while the memory `written` is written."""
        of_torch, lasting = self.torch.Tensor, []
        for grad, tensor in zip(grads, tensors):
            if not isinstance(grad, of_torch):
                grad = self.torch.as_tensor(grad)
            if grad.dtype is not tensor.dtype or grad.device != tensor.device:
                grad = grad.to(tensor)
            grad = self.lasting(grad, written)
            lasting.append(grad if grad.is_contiguous() else grad.contiguous())
        return lasting

    @staticmethod
    def lasting(grad, written):
        """Returns a gradient that stays as it is while the memory `written` is written."""
        values = grad._values() if grad.is_sparse else grad
        return grad.clone() if values.untyped_storage().data_ptr() in written else grad

    # Kernels. The names and the arguments are those of TensorFlow's, which engine/fused.py maps rules to.

    def kernel(self, operation, settings, tensors):
        """Returns a kernel for tensors as a function of (tensors, gradients, `{argument: number or tensors}`), or None.

        Args:
            operation, settings: of a `Kernel` of engine/fused.py.
        """
        if self.is_far(tensors):  # reading a hyper would wait for the device: see `device_kernel`
            return None
        return self._function(operation, settings)

    def _function(self, operation, settings):
        has_form = not (settings.get("use_nesterov") and operation == "apply_adam")
        return self._kernels.get(operation) if has_form else None

    def device_kernel(self, kernel, scalars, tensors):
        """Returns a kernel as `kernel` does for tensors of another device, for steps whose `scalars` are numbers.

        It is tried once on one element: not every device's torch has all of them.
        """
        function, key = self._function(kernel.operation, kernel.settings), (
            kernel.operation, tuple(sorted(kernel.settings.items())), tensors[0].dtype, tensors[0].device)
        if function and key not in self._working:
            tried = [self._tried(function, kernel, scalars, key[2], device) for device in ("cpu", key[3])]
            self._working[key] = None not in tried and bool(self.torch.allclose(*tried, rtol=1e-4))
        return function if function and self._working[key] else None

    def _tried(self, function, kernel, scalars, dtype, device):
        """Returns what a kernel computes of some numbers on a device; None if it is not there."""
        one = lambda number: [self.torch.full((1,), number, dtype=dtype, device=device)]  # noqa: E731
        tensors, slots = one(2.0), {name: one(0.5) for name in kernel.slots}
        try:
            function(tensors, one(0.25), **dict(dict.fromkeys(scalars, 0.5), **dict(slots, **kernel.settings)))
            return self.torch.cat([each.cpu() for each in tensors + [slot[0] for slot in slots.values()]])
        except (NotImplementedError, RuntimeError):  # torch raises these if it has no such kernel
            return None

    def _steps(self, number, tensors):
        """Returns the numbers of steps that a kernel takes, one for each tensor."""
        return [self._constant(number, self.torch.float32, tensors[0].device)] * len(tensors)

    def _apply_adam(self, tensors, grads, m, v, lr, beta1, beta2, epsilon, beta1_power, beta2_power, vhat=()):
        late = self._steps(math.inf, tensors)  # so late that no bias is left to correct, as with beta powers of 0
        self.torch._fused_adam_(
            tensors, grads, m, v, list(vhat), late, lr=lr, beta1=beta1, beta2=beta2, weight_decay=0.0, eps=epsilon,
            amsgrad=bool(vhat), maximize=False,
        )

    _apply_adam_with_amsgrad = _apply_adam

    def _apply_gradient_descent(self, tensors, grads, alpha):
        if self.are_small(tensors):
            self.torch._foreach_add_(tensors, grads, alpha=-alpha)
        else:
            self._descend(tensors, grads, [], alpha, 0.0)

    def _apply_momentum(self, tensors, grads, accum, lr, momentum, use_nesterov):
        if momentum and not self.are_small(tensors):
            self._descend(tensors, grads, accum, lr, momentum, nesterov=use_nesterov)
            return
        self.torch._foreach_mul_(accum, momentum)
        self.torch._foreach_add_(accum, grads)
        self.torch._foreach_add_(tensors, accum, alpha=-lr * momentum if use_nesterov else -lr)
        if use_nesterov:
            self.torch._foreach_add_(tensors, grads, alpha=-lr)

    def _apply_keras_momentum(self, tensors, grads, accum, lr, momentum, use_nesterov):
        # accum = momentum * accum - lr * grad; tensor += accum, or with nesterov momentum * accum - lr * grad
        if momentum and not use_nesterov and not self.are_small(tensors):
            self._descend(tensors, grads, accum, -1.0, momentum, dampening=1 + lr)
            return
        self.torch._foreach_mul_(accum, momentum)
        self.torch._foreach_add_(accum, grads, alpha=-lr)
        self.torch._foreach_add_(tensors, accum, alpha=momentum if use_nesterov else 1.0)
        if use_nesterov:
            self.torch._foreach_add_(tensors, grads, alpha=-lr)

    def are_small(self, tensors):
        """Returns whether several passes over all tensors take less than a fused one: that has 9 us a tensor."""
        return not self.is_far(tensors) and sum(tensor.numel() for tensor in tensors) < JOIN * len(tensors)

    def _descend(self, tensors, grads, accum, lr, momentum, dampening=0.0, nesterov=False):
        self.torch._fused_sgd_(
            tensors, grads, accum, weight_decay=0.0, momentum=momentum, lr=lr, dampening=dampening, nesterov=nesterov,
            maximize=False, is_first_step=False,
        )

    def _apply_adagrad(self, tensors, grads, accum, lr, epsilon=0.0):
        first = self._steps(1.0, tensors)
        self.torch._fused_adagrad_(
            tensors, grads, accum, first, lr=lr, lr_decay=0.0, weight_decay=0.0, eps=epsilon, maximize=False
        )

    _apply_adagrad_v2 = _apply_adagrad


# {operation: the function of torch that it needs}
_NEEDED = dict(
    apply_adam="_fused_adam_", apply_adam_with_amsgrad="_fused_adam_", apply_gradient_descent="_fused_sgd_",
    apply_momentum="_fused_sgd_", apply_keras_momentum="_fused_sgd_", apply_adagrad="_fused_adagrad_",
    apply_adagrad_v2="_fused_adagrad_",
)
