"""Expressions that are the number of a device."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says


@pytest.mark.parametrize(
    "line",
    ["x.to(torch.float16)", "x.to(other)", "x.to(device)", "torch.zeros(3, device=device)", "Foo().to(0)"],
)
def test_what_is_no_device_number_stays(line: str) -> None:
    source = f"import torch\nclass Foo:\n    def to(self, n):\n        return self\n{line}\n"
    check_noop("device_integer", source, to="any")


def test_a_number_for_something_unknown_needs_manual_review() -> None:
    source = "import torch\nfrom things import Thing\nThing().to(device=0)\n"
    check_says("device_integer", source, "manual", "if this moves a tensor", to="any")
