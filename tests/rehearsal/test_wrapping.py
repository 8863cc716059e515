"""Functions of a module or class are replaced by wrappers."""

import inspect
from types import SimpleNamespace
from typing import Any

from viaduct.rehearsal.wrapping import wrap


class Counter:
    def add(self, number: int, times: int = 1) -> int:
        """Return a product."""
        return number * times


def test_the_wrapper_of_a_function_gets_the_plain_one_and_the_arguments() -> None:
    module = SimpleNamespace(add=lambda a, b=0: a + b)

    @wrap(module, "add")
    def add(plain: Any, a: int, b: int = 0) -> Any:
        return plain(a, b=10 * b)

    assert module.add(1, b=2) == 21
    assert module.add is add


def test_the_wrapper_of_a_method_gets_the_object_and_keeps_name_and_signature() -> None:
    class Counted(Counter):
        pass

    @wrap(Counted, "add")
    def add_twice(plain: Any, self: Counter, number: int, times: int = 1) -> Any:
        return plain(self, number, times) + plain(self, number, times)

    assert Counted().add(3, times=2) == 12
    assert Counter().add(3, times=2) == 6, "the base class is unchanged"
    assert Counted.add.__name__ == "add"
    assert Counted.add.__doc__ == "Return a product."
    assert inspect.signature(Counted.add) == inspect.signature(Counter.add)
