# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any

class Averages:
    zero_grad_is_noop: Any
    def share(self, ops: Any, hyper: Any, t: Any) -> Any: ...
