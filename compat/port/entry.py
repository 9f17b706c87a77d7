"""`everstep.port`: makes a definition of an optimizer that somebody wrote for one API."""
from __future__ import absolute_import, division, print_function

from everstep.compat.port import comparing
from everstep.compat.port.arguments import factory_of
from everstep.compat.port.originals import Kind
from everstep.compat.port.wrapping import port_of, stock_port
from everstep.errors import PortError, UnsupportedError
from everstep.optimizers.contract import Definition


def port(optimizer, arguments=None, sparse=None, progress=None):
    """Makes a definition of a foreign optimizer: reads its update from its graph, and writes it down as a class.

    The definition is trained beside the original, on the original's own API: shapes of one to three dimensions, two
    variables, other hypers, each option, sparse gradients with duplicate rows. If they differ, it raises an error.

    For example, with an optimizer of a project's own:

        ported = everstep.port(SignedMomentum, {"learning_rate": 0.02})
        print(ported.source)
        model.compile(ported.definition.bind(keras), "mse")

    Args:
        optimizer: the class of an optimizer, a function of keywords that returns one, or an optimizer of a Keras API.
            Of `tf.train`, OptimizerV2, Keras 2's `get_updates`, new-style Keras, or Keras 3 on TensorFlow.
        arguments: a dict of constructor arguments. Numbers become hypers, True and False options, a list of name
            patterns an option of the rule. A schedule is taken over as it is. Others stay as given.
        sparse: None to find what the original does with sparse gradients. "exact", "rows" or "variable_rows" to choose
            it, if the original does something else.
        progress: a function, called with a text at each stage.

    Returns:
        A `Port`: definition, source and report. For a stock optimizer the definition is that of `from_native`.

    Raises:
        PortError: the optimizer cannot be ported, or the definition computes something else; the message says why.
        UnsupportedError: TensorFlow is not installed.
    """
    if sparse not in (None,) + comparing.MODES:
        raise PortError('sparse is None, "exact", "rows" or "variable_rows"; got {!r}'.format(sparse))
    if isinstance(optimizer, Definition) or isinstance(optimizer, type) and issubclass(optimizer, Definition):
        raise PortError("{!r} is a definition already".format(optimizer))
    factory, arguments = factory_of(optimizer, dict(arguments or {}))
    kind = kind_of(factory, arguments)
    return stock_port(kind, arguments, sparse) or port_of(kind, arguments, sparse, progress=progress)


def kind_of(factory, arguments):
    """Returns the Kind of an optimizer. Raises UnsupportedError without TensorFlow."""
    try:
        import tensorflow  # noqa: F401  # for the message
    except ImportError:
        raise UnsupportedError("port reads the graph of an optimizer, which needs TensorFlow. It is not installed")
    return Kind(factory, arguments)
