"""What each TensorFlow op does, in expressions. Each rule takes the machine and the op, and returns its outputs."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.port.algebra import ONE, ZERO, leaf_names, number_of, ops
from everstep.compat.port.kernels import KERNELS
from everstep.compat.port.machine import Array, Reference, Unknown
from everstep.compat.rules.expressions import Value
from everstep.errors import PortError

_UNARY = dict(
    Neg="negative", Sqrt="sqrt", Rsqrt="rsqrt", Square="square", Exp="exp", Log="log", Sin="sin", Cos="cos",
    Sign="sign", Floor="floor", Abs="abs", LogicalNot="logical_not", IsFinite="isfinite", Sigmoid="sigmoid",
    Tanh="tanh",
)
_BINARY = dict(
    Add="add", AddV2="add", Sub="subtract", Mul="multiply", RealDiv="divide", Div="divide", Pow="pow",
    FloorDiv="floor_divide", FloorMod="remainder", Mod="remainder", TruncateMod="remainder", Maximum="maximum",
    Minimum="minimum", Equal="equal", Less="less", LessEqual="less_equal", Greater="greater",
    GreaterEqual="greater_equal", LogicalAnd="logical_and", LogicalOr="logical_or",
)
_REDUCTIONS = dict(Sum="sum", Mean="mean", Max="max", Min="min", Any="any", All="all", EuclideanNorm="sum")
_SAME = (
    "Identity ReadVariableOp StopGradient PreventGradient CheckNumerics EnsureShape RefIdentity DeepCopy Snapshot "
    "PlaceholderWithDefault"
).split()
_NOTHING = (
    "NoOp Assert ControlTrigger PrintV2 Print VarIsInitializedOp IsVariableInitialized LogicalAssert".split()
)
_SHAPES = (
    "Shape Rank Size Prod Range StridedSlice Slice ConcatV2 Concat VariableShape ListDiff BroadcastArgs "
    "DynamicStitch GatherV2 Gather SplitV ShapeN"
).split()
RULES = {}


def rule(*types):
    def add(function):
        RULES.update((each, function) for each in types)
        return function

    return add


def tensor_util():
    from tensorflow.python.framework import tensor_util  # has MakeNdarray and constant_value in every version

    return tensor_util


def fixed(tensor):
    """Returns the value of a tensor that depends on no number, as an Array or expression; None if it has none."""
    value = tensor_util().constant_value(tensor)
    if value is None:
        return None
    value = np.asarray(value)
    return ops.constant(value.item()) if value.ndim == 0 and value.dtype.kind in "biuf" else Array(value)


def fixed_or(tensor, otherwise):
    value = fixed(tensor)
    return otherwise if value is None else value


def given(machine, op, place=0):
    """Returns what an op takes at a place, as an expression."""
    return machine.expression(machine.value(op.inputs[place]))


def static_shape(tensor):
    """Returns a tensor's shape as a list; None if it is not known."""
    shape = tensor.get_shape()
    return [int(size) for size in shape.as_list()] if shape.is_fully_defined() else None


def _elementwise(name):
    def apply(machine, op):
        values = [machine.value(tensor) for tensor in op.inputs]
        if any(isinstance(value, Unknown) for value in values):
            return [fixed_or(op.outputs[0], next(value for value in values if isinstance(value, Unknown)))]
        if any(isinstance(value, Array) for value in values) and not any(
            isinstance(value, Value) and value.op != "constant" for value in values
        ):
            value = fixed(op.outputs[0])
            if value is not None:
                return [value]
        return [ops.apply(name, [machine.expression(value) for value in values])]

    return apply


RULES.update((kind, _elementwise(name)) for kind, name in list(_UNARY.items()) + list(_BINARY.items()))


def _of_numbers(function):
    """Returns a rule for an op that takes numbers: function of expressions -> expression."""
    return lambda machine, op: [function(*[given(machine, op, place) for place in range(len(op.inputs))])]


def _uniform(machine, op):
    """Returns the value of an op that repeats its input, if it is one number."""
    value = machine.value(op.inputs[0])
    if isinstance(value, Value) and not _is_whole(value):
        return value
    raise PortError("it repeats a value along an axis")


def _divide_no_nan(a, b):
    zero = ops.equal(b, 0)
    return ops.where(zero, 0, a / ops.where(zero, 1, b))


RULES.update(
    NotEqual=_of_numbers(lambda a, b: ~ops.equal(a, b)),
    DivNoNan=_of_numbers(_divide_no_nan),
    MulNoNan=_of_numbers(lambda a, b: ops.where(ops.equal(b, 0), 0, a * b)),
    Reciprocal=_of_numbers(lambda a: 1 / a),
    Inv=_of_numbers(lambda a: 1 / a),
    SquaredDifference=_of_numbers(lambda a, b: ops.square(a - b)),
    Log1p=_of_numbers(lambda a: ops.log(1 + a)),
    Expm1=_of_numbers(lambda a: ops.exp(a) - 1),
    Softplus=_of_numbers(lambda a: ops.log(1 + ops.exp(a))),
    Relu=_of_numbers(lambda a: ops.maximum(a, 0)),
    Ceil=_of_numbers(lambda a: -ops.floor(-a)),
    IsNan=_of_numbers(lambda a: ~ops.equal(a, a)),
    Select=_of_numbers(ops.where),
    SelectV2=_of_numbers(ops.where),
    ClipByValue=_of_numbers(ops.clip),
    ZerosLike=lambda machine, op: [ops.constant(False) if op.outputs[0].dtype.is_bool else ZERO],
    OnesLike=lambda machine, op: [ONE],
    Fill=lambda machine, op: [machine.value(op.inputs[1])],
    BroadcastTo=lambda machine, op: [machine.value(op.inputs[0])],
    Tile=lambda machine, op: [_uniform(machine, op)],
)


@rule("AddN")
def add_n(machine, op):
    values = [given(machine, op, place) for place in range(len(op.inputs))]
    return [sum(values[1:], values[0])]


@rule("VarHandleOp", "VariableV2", "Variable")
def variable(machine, op):
    return [Reference(op.name)]


@rule("Const")
def const(machine, op):
    proto = op.get_attr("value")
    if proto.dtype == 14 and proto.half_val:  # bfloat16: upper halves of float32, which TF 1.6 cannot read itself
        halves = (np.array(proto.half_val, np.uint32) << 16).view(np.float32)
        value = np.resize(halves, [each.size for each in proto.tensor_shape.dim])
    else:
        value = tensor_util().MakeNdarray(proto)
    if value.dtype.kind not in "biuf" and value.dtype.name != "bfloat16":
        return [Unknown("a text")]
    if value.dtype.kind == "b" or not value.size or not (value == value.flat[0]).all():
        return [ops.constant(value.item()) if value.ndim == 0 else Array(value)]
    if value.ndim and value.dtype.kind != "f":
        return [Array(value)]
    return [machine.note_constant(op, float(value.flat[0]))]


@rule(*_NOTHING)
def nothing(machine, op):
    return [ops.constant(True) for _ in op.outputs]


@rule("Placeholder")
def placeholder(machine, op):
    raise PortError("it needs a value that is fed from outside")


@rule("Switch", "RefSwitch")
def switch(machine, op):
    value = machine.get(op.inputs[0])
    return [value, value]


@rule("Merge", "RefMerge")
def merge(machine, op):
    """The end of `tf.cond` in graphs of TF 1: chooses by the predicate of the Switch or context of either input."""
    for place, tensor in enumerate(op.inputs):
        context = tensor.op._get_control_flow_context()
        other = op.inputs[1 - place]
        if context is not None and type(context).__name__ == "CondContext" and context is not (
            op._get_control_flow_context()
        ):
            predicate, is_true = context.pred, bool(context.branch)
        elif tensor.op.type in ("Switch", "RefSwitch"):
            predicate, is_true = tensor.op.inputs[1], bool(tensor.value_index)
        else:
            continue
        yes, no = (tensor, other) if is_true else (other, tensor)
        yes, no = machine.value(yes), machine.value(no)
        if yes is no or not isinstance(yes, Value) or not isinstance(no, Value):
            return [yes, ZERO]
        return [ops.where(machine.expression(machine.value(predicate)), yes, no), ZERO]
    raise PortError("its branches cannot be told apart")


@rule("If", "StatelessIf")
def branches(machine, op):
    predicate = given(machine, op)
    arguments = [machine.get(tensor) for tensor in list(op.inputs)[1:]]
    results = []
    for name in ("then_branch", "else_branch"):
        attribute = op.get_attr(name)
        results.append(machine.call(getattr(attribute, "name", attribute), arguments))
    (yes, yes_writes), (no, no_writes) = results
    before = {key: machine.read(key) for key in list(yes_writes) + list(no_writes)}
    for key in before:
        machine.write(key, ops.where(predicate, yes_writes.get(key, before[key]), no_writes.get(key, before[key])))
    merged = []
    for a, b in zip(yes, no):
        a, b = (machine.read(each.key) if isinstance(each, Reference) else each for each in (a, b))
        merged.append(ops.where(predicate, a, b) if isinstance(a, Value) and isinstance(b, Value) else a)
    return merged


@rule("PartitionedCall", "StatefulPartitionedCall")
def call(machine, op):
    attribute = op.get_attr("f")
    arguments = [machine.get(tensor) for tensor in op.inputs]
    results, written = machine.call(getattr(attribute, "name", attribute), arguments)
    for key, value in written.items():
        machine.write(key, value)
    return results


@rule("IdentityN")
def identities(machine, op):
    return [machine.get(tensor) if "resource" in str(tensor.dtype) else machine.value(tensor) for tensor in op.inputs]


@rule(*_SAME)
def same(machine, op):
    if "resource" in str(op.inputs[0].dtype) and op.type != "ReadVariableOp":
        return [machine.get(op.inputs[0])]
    return [machine.value(op.inputs[0])]


@rule("Reshape", "ExpandDims", "Squeeze")
def reshape(machine, op):
    value = machine.value(op.inputs[0])
    if not isinstance(value, Value) or value.op == "constant":
        return [value]
    before, after = static_shape(op.inputs[0]), static_shape(op.outputs[0])
    source = op.inputs[0].op
    if before is None and source.type == "Sum":
        axes = machine.get(source.inputs[1])
        if isinstance(axes, Array) and not axes.value.size:  # of gradients in TF 1.4
            before = static_shape(source.inputs[0])
    if before is None or after is None:
        if _is_whole(value):
            raise PortError("it needs a shape that is not known before the step")
        return [value]
    if before == after or not before or not after or max(before) == 1 and len(after) <= 1:
        return [value]
    if max(before) == 1 and not _is_whole(value):
        return [value]
    return [ops.reshape(value, (-1,) if after == [int(np.prod(before))] else tuple(after))]


def _is_whole(value):
    return any(name in ("grad", "var") or name.startswith("slots.") for name in leaf_names(value))


@rule("Cast")
def cast(machine, op):
    value = machine.value(op.inputs[0])
    if not isinstance(value, Value):
        return [value]
    before, after = op.inputs[0].dtype.base_dtype, op.outputs[0].dtype.base_dtype
    if after.is_bool:
        return [value if value.dtype == "bool" else ~ops.equal(value, 0)]
    if value.dtype == "bool":
        return [ops.cast(value, ops.dtype)]
    if before.is_floating and after.is_integer:
        return [ops.floor(value)]  # the same as truncation for counts, which are never negative
    return [value]


@rule("L2Loss")
def l2_loss(machine, op):
    return [ops.sum(ops.square(given(machine, op))) / 2]


def _norm_of_one_number_keeps_its_sign():
    """Returns whether the kernel takes a reduction of one element for none, and forgets the absolute value."""
    import tensorflow

    tf1 = tensorflow.compat.v1  # TensorFlow 1.13 has it, and the op came with 1.14
    with tf1.Graph().as_default(), tf1.Session() as session:
        return session.run(tf1.raw_ops.EuclideanNorm(input=[-1.0], axis=[0])) < 0


@rule(*_REDUCTIONS)
def reduce(machine, op):
    name, value = _REDUCTIONS[op.type], machine.value(op.inputs[0])
    if isinstance(value, (Array, Unknown)):
        return [fixed_or(op.outputs[0], Unknown("the result of " + op.type))]
    if op.type == "EuclideanNorm" and _norm_of_one_number_keeps_its_sign():
        raise PortError(
            "EuclideanNorm of this TensorFlow returns one number as it is, with its sign, so that the original does "
            "something else to variables of one element. Write tf.sqrt(tf.reduce_sum(tf.square(x))), or port it with "
            "a newer TensorFlow"
        )
    if isinstance(value, list):
        return [_of_list(name if op.type != "EuclideanNorm" else op.type, value)]
    if op.inputs[0].get_shape().ndims is None:
        raise PortError("it needs a shape that is not known before the step")
    rank = int(op.inputs[0].get_shape().ndims)
    axes = machine.value(op.inputs[1])
    if isinstance(axes, Value) and axes.op == "constant":
        axes = [int(number_of(axes))]
    elif isinstance(axes, Array):
        axes = np.ravel(axes.value)
    else:
        raise PortError("its axes are not known before the step")
    axes = sorted(set(int(axis) % rank for axis in axes)) if rank else []
    if not axes:
        return [abs(value) if op.type == "EuclideanNorm" else value]
    keepdims = bool(op.get_attr("keep_dims"))
    options = {"axis": _axes(axes, rank, machine.axes), "keepdims": keepdims}
    if len(axes) == rank:
        options = {"axis": None, "keepdims": keepdims and rank > 1}
    if op.type == "EuclideanNorm":
        return [ops.sqrt(ops.apply(name, (ops.square(value),), options))]
    return [ops.apply(name, (value,), options)]


def _axes(axes, rank, style):
    """Returns axes in a form that holds for every rank. With rank 2 it may be read in two ways: see `style`."""
    forms = {"trailing": list(range(1, rank)), "leading": list(range(rank - 1)), "last": [rank - 1], "first": [0]}
    for form in ("trailing", "leading", "last", "first") if style == "trailing" else ("last", "first", "trailing"):
        if axes == forms[form]:
            return form
    return tuple(axes)


def _of_list(name, values):
    """Returns the reduction of numbers that were packed into a vector."""
    pairs = {"sum": "add", "max": "maximum", "min": "minimum", "all": "logical_and", "any": "logical_or"}
    if name not in pairs:
        raise PortError("it takes the {} of several numbers".format(name))
    result = values[0]
    for value in values[1:]:
        result = ops.apply(pairs[name], (result, value))
    return result


@rule("Pack", "Stack")
def pack(machine, op):
    values = [machine.value(tensor) for tensor in op.inputs]
    numbers = [number_of(value) if isinstance(value, Value) else None for value in values]
    if None not in numbers:
        return [Array(np.array(numbers))]
    if not all(isinstance(value, Value) for value in values):
        return [fixed_or(op.outputs[0], Unknown("a shape that is not known before the step"))]
    return [values]


@rule(*_SHAPES)
def shape(machine, op):
    values = [fixed(output) for output in op.outputs]
    why = Unknown("the result of {}, such as a part of a value".format(op.type))
    return [why if value is None else value for value in values]


@rule("BroadcastGradientArgs")
def broadcast_gradient_axes(machine, op):
    """The axes over which a gradient of two factors is summed: none if they have the same shape."""
    shapes = [fixed(tensor) for tensor in op.inputs]
    if all(isinstance(each, Array) for each in shapes) and np.array_equal(shapes[0].value, shapes[1].value):
        return [Array([]), Array([])]
    return [Unknown("axes that are not known before the step") for _ in op.outputs]


@rule("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(machine, op):
    factors = []
    for place, (plain, batched) in enumerate((("transpose_a", "adj_x"), ("transpose_b", "adj_y"))):
        value = given(machine, op, place)
        if op.get_attr(plain if op.type == "MatMul" else batched):
            rank = int(op.inputs[place].get_shape().ndims)
            axes = None if rank == 2 else tuple(range(rank - 2)) + (rank - 1, rank - 2)
            value = ops.transpose(value, axes)
        factors.append(value)
    return [ops.matmul(*factors)]


@rule("Transpose")
def transpose(machine, op):
    axes = machine.get(op.inputs[1])
    axes = tuple(int(axis) for axis in axes.value) if isinstance(axes, Array) else None
    if axes is None:
        raise PortError("its axes are not known before the step")
    value = given(machine, op)
    if axes == tuple(range(len(axes))):
        return [value]
    return [ops.transpose(value, None if axes == tuple(reversed(range(len(axes)))) else axes)]


@rule("Assign", "AssignVariableOp")
def assign(machine, op):
    key = machine.key(op.inputs[0])
    machine.write(key, machine.value(op.inputs[1]))
    return [Reference(key)]


def _assign_by(name):
    def apply(machine, op):
        key = machine.key(op.inputs[0])
        machine.write(key, ops.apply(name, (machine.read(key), given(machine, op, 1))))
        return [Reference(key)]

    return apply


RULES.update(
    AssignAdd=_assign_by("add"), AssignAddVariableOp=_assign_by("add"), AssignSub=_assign_by("subtract"),
    AssignSubVariableOp=_assign_by("subtract"),
)


def _kernel(formula, count):
    def apply(machine, op):
        keys = [machine.key(op.inputs[place]) for place in range(count)]

        def settings(name):
            return op.get_attr(name) if name in op.node_def.attr else None

        if settings("multiply_linear_by_lr"):
            raise PortError("its setting multiply_linear_by_lr has no formula here")
        old = [machine.read(key) for key in keys]
        values = formula(old.__getitem__, lambda place: given(machine, op, place), settings)
        for place in sorted(values, reverse=True):
            machine.write(keys[place], values[place])
        return [Reference(keys[0])]

    return apply


for _name, (_formula, _count) in KERNELS.items():
    RULES["Apply" + _name] = RULES["ResourceApply" + _name] = _kernel(_formula, _count)
