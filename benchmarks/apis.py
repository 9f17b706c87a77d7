"""The optimizer APIs of this environment, and how to run an optimizer on each."""
import importlib
import os


class Api(object):
    """One optimizer API.

    Args:
        name: The name of everstep's target, and the kind of variables: "tf_train, resource".
        module: The module to bind to.
        optimizers: The module of the API's own optimizers.
        run: Runs an optimizer as the API is used: (function that creates it, shapes, look_ups=0) -> a `timing.Run`.
        eager: The same in eager mode, or None if the API is not used like that.
        model: (model's name, function that creates an optimizer) -> a `timing.Run` of whole training steps, or None.
        peers: {label: function of shapes that runs Adam of another library of the same framework}.
        sessions: True if steps run in sessions, where some strategies are and others are not.
        opt_in_xla: True if a step can be compiled on request only.
    """

    def __init__(
        self, name, module, optimizers, run, eager=None, model=None, peers=None, sessions=False, opt_in_xla=False
    ):
        self.name, self.module, self.optimizers = name, module, optimizers
        self.run, self.eager, self.model = run, eager, model
        self.peers, self.sessions, self.opt_in_xla = peers or {}, sessions, opt_in_xla

    @property
    def target(self):
        return self.name.split(",")[0]

    @property
    def backend(self):
        """Returns the framework that computes: tensorflow, jax or torch."""
        return os.environ["KERAS_BACKEND"]

    @property
    def adam(self):
        """Returns the API's own Adam."""
        return self.own("AdamOptimizer") or self.own("Adam")

    @property
    def epsilon(self):
        """Returns the epsilon that the API's own Adam has by default, so that ours computes the same."""
        return 1e-8 if self.target == "tf_train" else 1e-7

    def own(self, name):
        """Returns the API's own class of a name, or None if it has none."""
        return getattr(self.optimizers, name, None)

    def bind(self, definition, **native):
        return lambda: definition.bind(self.module, **native)

    def compared(self, stock, definition, shapes, run=None):
        """Returns {label: run} of a stock optimizer and of ours on the same variables and gradients."""
        makes = {"stock": stock, "everstep": self.bind(definition)}
        return {label: (run or self.run)(make, shapes) for label, make in makes.items()}


def apis():
    """Returns the APIs of this environment. KERAS_BACKEND chooses the framework."""
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    return list(importlib.import_module("on_tensorflow" if backend == "tensorflow" else "on_keras3").apis())
