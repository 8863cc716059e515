"""Lines that differ in numbers, strings or operators only are distinguished from other ways of writing the same."""

from __future__ import annotations

import pytest

from viaduct.carrying.values import differs_in_values

ANOTHER = {
    "number": ("x = f(0.1, rate)", "x = f(0.2, rate)"),
    "argument on a line of its own": ("    momentum=0.9,", "    momentum=0.99,"),
    "switch": ("x = True", "x = False"),
    "comparison": ("if a > b:", "if a >= b:"),
    "operator": ("x = a + b", "x = a - b"),
    "negation": ("if ready:", "if not ready:"),
    "string": ("mode = 'mean'", "mode = 'sum'"),
    "number in an f-string": ('print(f"{loss:.4f} {2 * loss}")', 'print(f"{loss:.4f} {3 * loss}")'),
    "operator in an f-string": ('print(f"{a / b}")', 'print(f"{a * b}")'),
}
THE_SAME = {
    "spelling of a number": ("lr = 0.05", "lr = 5e-2"),
    "device": ('x.to("cuda")', 'x.to("npu:0")'),
    "brackets": ("x = a + b", "x = (a + b)"),
    "rename": ("total = a + 1", "count = a + 1"),
    "rename in an f-string": ('print(f"loss {total / 2:.4f}")', 'print(f"loss {running / 2:.4f}")'),
    "quotes": ("x = 'a'", 'x = "a"'),
    "comment": ("x = 1", "x = 1  # one"),
}


@pytest.mark.parametrize("name", ANOTHER)
def test_another_value_is_reported(name: str) -> None:
    assert differs_in_values(*ANOTHER[name])


@pytest.mark.parametrize("name", THE_SAME)
def test_another_way_of_writing_the_same_is_not(name: str) -> None:
    assert not differs_in_values(*THE_SAME[name])
