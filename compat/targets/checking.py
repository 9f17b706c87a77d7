"""The members of a target that check a call before it creates or writes anything, and that forget one that failed."""
from __future__ import absolute_import, division, print_function

import contextlib

from everstep.compat.engine.pairs import check_pairs, check_rows
from everstep.compat.engine.rehearsal import rehearse
from everstep.compat.engine.step import skips
from everstep.compat.targets.hypers import Hypers
from everstep.errors import GradientError


class Checking(Hypers):
    """Members for calls that fail: they change nothing, in the variables or in what the optimizer knows of them."""

    def check_grads(self, pairs):
        """Returns pairs whose gradients and rules were checked, before anything is created or written.

        Args:
            pairs: (gradient, variable) pairs, whose variables were checked. A gradient can be None.

        Raises:
            GradientError: no pair has a gradient, or one does not fit its variable.
            RuleError: the rule of a variable breaks its contract.
        """
        variables = [variable for _, variable in pairs]
        natives = [(grad, self.unwrap(variable)) for grad, variable in pairs]
        try:
            natives = check_pairs(self.backend, natives, self.casts_gradients)
        except GradientError:
            self._check_real(natives)
            raise
        if "all_or_nothing" in self.backend.unsupported:  # else a step whose rule raises is undone
            rehearse(self, [(grad, variable) for (grad, _), variable in zip(natives, variables) if grad is not None])
        return [(grad, variable) for (grad, _), variable in zip(check_rows(self.backend, natives), variables)]

    def _check_real(self, pairs):
        for grad, variable in pairs:
            dtype = str(self.backend.dtype(variable)) if grad is not None else ""
            if "complex" in dtype:
                raise self.refusal("complex variables", got=getattr(variable, "name", "an array"), dtype=dtype)

    @contextlib.contextmanager
    def forgetting_failures(self):
        """Returns a context that forgets what it learned of variables and calls if its body raises.

        Else `capture` would ask for the variables of a call that failed, and a definition that counts calls for the
        same ones again.
        """
        first_new, made, checked = len(self._rules), self._made, self._checked
        calls = dict(self._calls) if self._calls or skips(self.definition) else {}
        try:
            yield
        except BaseException:
            for key in [key for key, known in self._rules.items() if known.record.index >= first_new]:
                del self._rules[key]
            self._seen.clear()
            self.lowerings.checked = ()
            self._calls.clear()
            self._calls.update(calls)
            self.__dict__.update(_made=made, _checked=checked)
            raise
