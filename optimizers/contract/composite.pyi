# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any

from everstep.optimizers.contract.declarations import Child
from everstep.optimizers.contract.definition import Definition

class Composite(Definition):
    forwarded_verbs: Any
    measures_on_update: Any

class Wrapper(Composite):
    inner: Child
