"""Target `torch_optim`: optimizers of PyTorch without Keras, for `bind(torch.optim, params=...)`.

All state is where stock has it: slots and counters in `state[param]`, hypers in `param_groups`, under stock's names
(`exp_avg`, `betas`). So torch's own `state_dict`, loaders and schedulers work, and files of stock load into ours and
back. Parameters that share hypers and counts are a lane (compat/engine/lanes.py); a step runs once for each lane.
"""
from __future__ import absolute_import, division, print_function

import operator
import sys
from collections import OrderedDict

from everstep.compat.backends.on_torch_alone import TorchBackend
from everstep.compat.engine import lanes
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import with_gradients
from everstep.compat.engine.step import skips
from everstep.compat.targets import hypers
from everstep.compat.targets.adapter import InOneProcess
from everstep.compat.targets.checking import check_caller, check_grads, forgetting_failures
from everstep.compat.targets.construction import COMPLEX, Unsupported, keyword
from everstep.compat.targets.copying import AsTorch
from everstep.compat.targets.losses import scaled
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.torch_groups import Groups, torch_arguments
from everstep.compat.targets.torch_shared_steps import SharedSteps
from everstep.compat.targets.torch_state import ParamState
from everstep.errors import DefinitionError, UnsupportedError, VariableError
from everstep.optimizers.contract.by_name import Unnamed

_PARAMS = (
    "bind(torch.optim) needs params=: the parameters to train, as torch takes them: {}.bind(torch.optim, "
    "params=model.parameters()), or model.named_parameters(), or a list of groups"
)


class TorchOptimizer(NativeOptimizer):
    def step(self, closure=None):
        """Runs one step on the gradients in `param.grad`.

        Args:
            closure: a function that computes the loss again and returns it, with gradients enabled. Default None.

        Returns:
            What closure returned, or None.

        Raises:
            GradientError: a gradient does not fit its parameter.
            UnsupportedError: the definition needs the loss several times (`sharpness_aware`), and there is no closure.
        """
        return self._bound.adapter.plain_step()(closure)

    def add_param_group(self, param_group):
        self._bound.adapter.add_param_group(param_group)

    def load_state_dict(self, state_dict):
        """Loads what `state_dict` returned: ours, or that of the stock optimizer that computes the same.

        Raises:
            StateError: an option (`amsgrad`) or the slots differ from this optimizer's. Nothing has changed then.
            ValueError: the groups differ in number or size, as in stock.
        """
        self._bound.adapter.load_state_dict(state_dict)


class TorchAdapter(InOneProcess):
    target = "torch_optim"
    works_on = "torch.optim, PyTorch without Keras"
    native_class = TorchOptimizer
    unsupported = (
        COMPLEX,
        keyword("differentiable", "no step is recorded for backpropagation"),
        Unsupported(
            "DTensor parameters (FSDP2)", VariableError,
            "{optimizer} trains whole tensors; got a DTensor, a part of one. Train with DistributedDataParallel",
        ),
    )
    stock_hypers = ()
    ascends = False
    casts_gradients = True
    has_slots = "once step has run with its gradient"
    carries = AsTorch
    respelled = staticmethod(torch_arguments)

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return next(each for each in optimizer.__mro__ if each.__name__ == "Optimizer")

    @classmethod
    def entries(cls, base):
        return ()

    @classmethod
    def schedules(cls, base):
        return None

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, params=None, maximize=False, foreach=None, fused=None, capturable=False):
        if params is None:
            raise DefinitionError(_PARAMS.format(self.bound.definition._short()))
        if foreach and fused:
            raise DefinitionError("foreach and fused are two ways to take a step, as in stock; give one of them")
        self.bound.arguments.pop("params")
        self.use(TorchBackend(self.variable_name))
        for name in self.bound.hyper_declarations():
            if name.endswith("learning_rate") and isinstance(self.bound.given(name), float):
                hypers.check(self.bound, name, self.bound.given(name))
        self.names, self._lanes = {}, {}
        self._checked_last = []  # type: list  # the variables of the last step
        self._uncompiled = None
        self.groups = Groups(self.bound, dict(maximize=maximize, foreach=foreach, fused=fused, capturable=capturable))
        self.state = ParamState(self)
        self._shared = SharedSteps(self) if skips(self.bound.definition) else None
        self.base.__init__(params, self.groups.defaults())

    # Hypers.

    def present(self, name):
        return self.groups.value(self.native.param_groups[0], name, self.lane_of(None))

    def read(self, name):
        return self.groups.read(self.native.param_groups[0], name)

    def set(self, name, value):
        self.groups.set(self.native.param_groups, name, hypers.check(self.bound, name, value))

    def number(self, name, value):
        return value

    # Counters and scalars.

    def counter(self, name):
        return self.state.repeated[name]

    def scalar(self, name):
        return self.state.repeated[name]

    def own_variables(self):
        return self.state.repeated

    def counted_elsewhere(self):
        return None

    def calls_per_update(self):
        return 1

    # Variables and slots.

    def find_key(self, variable):
        return id(variable)

    def variable_name(self, variable):
        if id(variable) not in self.names:
            self._learn_names()
            self._check_known(variable)
        return self.names[id(variable)]

    def _check_known(self, variable):
        if not any(variable is param for param in self.params()):
            raise VariableError("{} trains the parameters that it was given; got {}".format(
                self.bound.owner, type(variable).__name__))

    def _learn_names(self):
        number = 0
        for group in self.native.param_groups:
            for place, param in enumerate(group["params"]):
                given = group.get("param_names")
                self.names[id(param)] = given[place] if given else Unnamed("param_{}".format(number))
                number += 1

    def state_name(self, variable, index):
        return str(self.variable_name(variable))

    def find_slot(self, variable, name):
        return self.state.of(variable).get(self.state.name(name))

    def get_slot(self, variable, name):
        self.check_variable(variable)
        return self.bound.require_slot(variable, name)

    def lane_of(self, variable):
        """Returns the lane of a variable; of None, that of all variables, if they are one, or of the last step."""
        variables = [variable]
        if variable is None:
            variables = self.trained() or self.params()[:1]
            variables = variables if self._shared is None else [self.state.latest(variables)]
        return self._lanes_of([(None, each) for each in variables])[0][0]

    def params(self):
        return [param for group in self.native.param_groups for param in group["params"]]

    # State.

    def check_variable(self, variable):
        self._check_known(variable)
        if variable.is_complex():
            name = self.variable_name(variable)
            raise hypers.refusal(self.bound, "complex variables", got=name, dtype=variable.dtype)

    def make_state(self, variables):
        for variable in variables:
            self.state.make(variable)
        return []

    def default_session(self, variables):
        return None

    def not_carried(self):
        return self.state.why_unequal()

    # Copies.

    def trained(self):
        return [param for param in self.params() if self.state.of(param)]

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        return function(variable, grad)

    def constrain(self, variable, write):
        return write

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        with self.backend.computing(), self.backend.at(variables[0]):
            lanes_here = self._lanes_of([(None, variable) for variable in variables])
            lanes.run([Flush(lane, [v for _, v in pairs]) for lane, pairs in lanes_here])
            self._store(lanes_here)
        return []

    def plain_step(self):
        """Returns `step`, which torch.compile leaves alone: its compiler cannot trace all of it."""
        if "torch._dynamo" not in sys.modules:  # importing it takes seconds
            return self.step
        if self._uncompiled is None:
            self._uncompiled = self.backend.torch.compiler.disable(self.step)
        return self._uncompiled

    def step(self, closure):
        stages, loss = self.bound.definition.stages, None
        if stages > 1 and not self.bound.takes_stages and closure is None:
            raise UnsupportedError("{} takes {} gradients of each batch; give step a closure that computes the "
                                   "loss".format(self.bound.definition._short(), stages))
        once = closure is None or stages == 1 or self.bound.takes_stages
        for stage in range(1 if once else stages):
            if closure is not None:
                with self.backend.torch.enable_grad():
                    computed = closure()
                loss = computed if stage == 0 else loss
            self._step(not once)
        return loss

    def _step(self, takes_stages):
        self.bound.takes_stages, before = self.bound.takes_stages or takes_stages, self.bound.takes_stages
        try:
            with self.backend.computing(), forgetting_failures(self.bound):
                pairs = self._checked(self._pairs())
                if pairs:
                    with self.backend.at(pairs[0][1]):
                        if self._shared is not None:
                            pairs = self._shared.completed(pairs)
                        self.take(pairs)
        finally:
            self.bound.takes_stages = before

    def _pairs(self):
        """Returns (gradient, parameter) pairs of all parameters, without those that have no gradient."""
        pairs = []
        for group in self.native.param_groups:
            self.groups.check(group)
            for param in group["params"]:
                grad = self.backend.dense(param.grad)
                if grad is not None:
                    pairs.append((-grad if group["maximize"] else grad, param))
        return pairs

    def _checked(self, pairs):
        if not pairs:  # as in stock
            return pairs
        variables, last = [variable for _, variable in pairs], self._checked_last
        if not (len(last) == len(variables) and all(map(operator.is_, variables, last)) and all(
                self.backend.surely_fits(grad, variable) for grad, variable in pairs)):
            self._checked_last = []
            self._forget_removed()
            pairs = with_gradients(check_grads(self.bound, pairs))
            self.bound.check_first(variables)
            self._checked_last = variables
        check_caller(self.bound)
        if self.state.ready(variables):
            self.forget()
        return pairs

    def _forget_removed(self):
        """Forgets parameters that people's code has taken out of the groups, whose memory nobody else holds."""
        present = set(map(id, self.params()))
        removed = [key for key in self.bound.rules if key not in present]
        for key in removed:
            del self.bound.rules[key]
            self.names.pop(key, None)
            self.state.forget(key)
        if removed:
            self.bound.calls.clear()  # as `add_param_group` does
            self.forget()

    def forget(self):
        """Forgets plans and slots, which the user's code or a loader has replaced."""
        self.bound.seen.clear()
        self.bound.renew_plans()
        self._lanes.clear()
        self._checked_last = []

    def _lanes_of(self, pairs):
        """Returns [(lane, its pairs)], with the hypers and counters of this step in the lanes."""
        by_key = OrderedDict()  # type: OrderedDict
        group_of = {}
        for group in self.native.param_groups:
            of_group = group, self.groups.key(group)
            group_of.update((id(param), of_group) for param in group["params"])
        for pair in pairs:
            variable = pair[1]
            group, hypers_of_group = group_of[id(variable)]
            key = hypers_of_group, self.state.counts(variable), variable.device
            by_key.setdefault(key, (group, []))[1].append(pair)
        found = []
        for key, (group, some) in by_key.items():
            ids = tuple([id(variable) for _, variable in some])
            if ids not in self._lanes:
                if len(self._lanes) > 64:
                    self._lanes.clear()
                self._lanes[ids] = lanes.Lane(self.bound, *self.state.lane_variables())
            lane = self._lanes[ids]
            self.state.fill(lane, key[1])
            lane.hypers = {name: self.groups.value(group, name, lane) for name in self.groups.keys}
            found.append((lane, some))
        return found

    def take(self, pairs):
        """Takes one step, in lanes, and stores counters and scalars beside the parameters."""
        found = self._lanes_of(pairs)
        if len(found) > 1:
            memory, lasting = self.backend.lists.memory(self.params()), self.backend.lists.lasting
            found = [(lane, [(lasting(grad, memory), v) for grad, v in some]) for lane, some in found]
        lanes.take(found)
        self._store(found)

    def _store(self, found):
        for lane, some in found:
            self.state.store(lane, [variable for _, variable in some])

    # What the base class does.

    def add_param_group(self, param_group):
        if isinstance(param_group, dict):
            param_group = self.groups.added(param_group)
        self.base.add_param_group(param_group)
        self.bound.calls.clear()  # definitions that count calls take the new parameters from now on

    def load_state_dict(self, state_dict, count=None):
        """Loads a state_dict. `count`: the updates of one that does not count them; None: 1, with a warning."""
        kept = []
        names = [group.get("param_names") for group in self.native.param_groups]

        def keep(native, taken):
            self.state.check(taken)
            kept.append(taken)

        if hasattr(self.native, "register_load_state_dict_pre_hook"):
            handle = self.native.register_load_state_dict_pre_hook(keep)
            try:
                self.base.load_state_dict(state_dict)
            finally:
                handle.remove()
        else:  # torch 2.0
            keep(self.native, state_dict)
            self.base.load_state_dict(state_dict)
        for group, given in zip(self.native.param_groups, names):
            if given is not None:  # torch before 2.6 forgets names that the state_dict does not have
                group.setdefault("param_names", given)
        self.state.take_exact(kept[0], count)


