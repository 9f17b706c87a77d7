# Written by hand: a declaration gives itself on the class and a value on an instance, which no comment in the code can
# say. tests/test_types.py compares it with declarations.py.
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, TypeVar, overload

from typing_extensions import Self

from everstep.optimizers.contract.definition import Definition, Variable
from everstep.optimizers.contract.types import HyperValue

_T_co = TypeVar("_T_co", covariant=True)

REQUIRED: object
VARIABLE: Any

def running_rule(running: bool = True) -> AbstractContextManager[None]: ...

class Declaration:
    kind: str
    is_argument: bool
    default: Any
    when: Any
    order: int
    name: str | None
    def __init__(self) -> None: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> Any: ...
    def read(self, instance: Any) -> Any: ...
    def check(self, owner: str, value: Any) -> Any: ...
    def check_declaration(self, owner: type) -> None: ...
    def exists(self, definition: Definition) -> bool: ...
    def check_when(self, what: str, owner: Any) -> None: ...
    @staticmethod
    def check_named(what: str, owner: Any, argument: str, name: str, kinds: Sequence[str]) -> None: ...

class Hyper(Declaration):
    minimum: float | None
    maximum: float | None
    def __init__(
        self, default: HyperValue = ..., minimum: float | None = None, maximum: float | None = None
    ) -> None: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> float | Any: ...  # a number, unless given otherwise
    def check_tensor(self, what: str, value: Any) -> Any: ...

class Option(Declaration, Generic[_T_co]):
    choices: Sequence[Any] | None
    minimum: float | None
    maximum: float | None
    schedule: bool | str
    # The default gives the type. With choices a subclass may have another default, so there it is left open.
    @overload
    def __init__(self: Option[bool], default: bool) -> None: ...
    @overload
    def __init__(
        self: Option[int], default: int, *, minimum: float | None = None, maximum: float | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: Option[float], default: float, *, minimum: float | None = None, maximum: float | None = None
    ) -> None: ...
    @overload
    def __init__(self: Option[str], default: str) -> None: ...
    @overload
    def __init__(
        self: Option[Any],
        default: Any = ...,
        choices: Sequence[Any] | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        schedule: bool | str = False,
    ) -> None: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> _T_co: ...

class Slot(Declaration):
    init: Any
    shape: Any
    dtype: str | None
    when: Any
    def __init__(
        self,
        init: Any = 0.0,
        shape: Literal["row"] | Sequence[int] | Callable[..., Iterable[int]] | None = None,
        dtype: str | None = None,
        when: str | Callable[[Any], Any] | None = None,
    ) -> None: ...
    def initial_value(self, definition: Definition) -> Any: ...
    def shape_for(self, record: Variable, definition: Definition) -> tuple[int, ...]: ...
    def dtype_for(self, record: Variable) -> str: ...

class Scalar(Declaration):
    init: float | str
    def __init__(self, init: float | str = 0.0, when: str | Callable[[Any], Any] | None = None) -> None: ...
    def initial_value(self, definition: Definition) -> float: ...

class Child(Declaration):
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> Definition: ...

hyper = Hyper
option = Option
slot = Slot
scalar = Scalar
child = Child
