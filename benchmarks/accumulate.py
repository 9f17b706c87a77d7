"""Steps of `everstep.accumulate(Adam(), 4)`, relative to plain steps: pending ones, and the mean of a window."""
from functools import partial

import everstep
from timing import TEN, Case

STEPS, NEVER = 4, 10**6
TABLE = [(100000, 32)]
ADAM = everstep.optimizers.Adam()


def accumulate(api):
    own = beside(api)
    yield Case("pending", own, partial(_runs, api, makes(api, ADAM, NEVER)))
    clipped = everstep.clip(ADAM, global_norm=1.0)
    yield Case("pending, clip inside", own, partial(_runs, api, makes(api, clipped, NEVER)))
    if api.backend == "tensorflow":
        yield Case("pending, rows of a table", "", partial(_rows, api))
    yield Case("mean of four", own, partial(_runs, api, makes(api, ADAM, STEPS), window=STEPS))


def beside(api):
    """Returns the name of the stock side, or an empty one."""
    if api.target == "keras3":
        return "gradient_accumulation_steps"
    return "sums by hand, one cond" if _by_hand(api) else ""


def _by_hand(api):
    """Returns whether users can write this: Keras 2.3 computes gradients itself; a cond of TF 2 has no ref variable."""
    if api.name == "tf_train":
        import tensorflow as tf

        return not tf.compat.v1.control_flow_v2_enabled()
    return api.target not in ("get_updates", "keras3")


def makes(api, definition, steps):
    """Returns {label: function that creates an optimizer}: a plain one, ours that accumulates, and stock's if any."""
    chosen = {"plain": api.bind(definition), "everstep": api.bind(everstep.accumulate(definition, steps))}
    if api.target == "keras3":
        chosen["stock"] = partial(api.adam, gradient_accumulation_steps=steps)
    elif _by_hand(api):
        chosen["stock"] = lambda: ByHand(api.adam(), steps)
    return chosen


def _runs(api, chosen, window=1):
    runs = {label: api.run(make, TEN) for label, make in chosen.items()}
    for label in set(runs) - {"plain"}:
        runs[label].window = window
    return runs


def _rows(api):
    chosen = {"plain": ADAM, "everstep": everstep.accumulate(ADAM, NEVER)}
    return {label: api.run(api.bind(definition), TABLE, 1024) for label, definition in chosen.items()}


class ByHand(object):
    """Sums gradients and updates in one `cond`, as programs do without everstep."""

    def __init__(self, optimizer, steps):
        import tensorflow as tf

        self.tf, self.optimizer, self.steps, self.sums = tf, optimizer, steps, None

    def build(self, variables):
        variable_class = self.tf.compat.v1.Variable
        options = [dict(trainable=False, use_resource=hasattr(variable, "handle")) for variable in variables]
        self.count = variable_class(0, **options[0])
        self.sums = [variable_class(self.tf.zeros(each.shape), **given) for each, given in zip(variables, options)]
        if hasattr(self.optimizer, "build"):
            self.optimizer.build(variables)

    def apply_gradients(self, pairs):
        tf = self.tf
        grads, variables = zip(*pairs)
        if self.sums is None:
            self.build(variables)
        added = [total.assign_add(grad, read_value=False) for total, grad in zip(self.sums, grads)]
        with tf.control_dependencies(added + [self.count.assign_add(1, read_value=False)]):
            whole = tf.equal(self.count.read_value() % self.steps, 0)
            return tf.cond(whole, lambda: self._update(variables), lambda: tf.constant(False))

    def _update(self, variables):
        tf = self.tf
        means = [total.read_value() / self.steps for total in self.sums]
        with tf.control_dependencies(means):
            zeroed = [total.assign(tf.zeros(total.shape), read_value=False) for total in self.sums]
        step = self.optimizer.apply_gradients(list(zip(means, variables)))  # new-style Keras returns a variable
        with tf.control_dependencies(zeroed + ([step] if isinstance(step, tf.Operation) else [])):
            return tf.constant(True)
