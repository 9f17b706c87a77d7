# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any

class Decoupled:
    def share(self, hyper: Any) -> Any: ...
