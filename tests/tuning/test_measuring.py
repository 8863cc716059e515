"""Measurements behind a ranking; no time is asserted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from viaduct.devices import get
from viaduct.devices.timing import Clock
from viaduct.tuning.bank import Choice
from viaduct.tuning.measuring import (
    OtherPrograms,
    VariantTimer,
    find_cache_bytes,
    is_significant,
    take_turns_until_significant,
)
from viaduct.tuning.operators import Work
from viaduct.tuning.signature import Signature


class Wrong:
    """A kind of operator whose variants are wrong by as much as they say."""

    KIND = "wrong"

    def make_work(self, signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
        def read_values() -> Sequence[tuple[str, Tensor]]:
            exactly = torch.ones(8, dtype=torch.float64)
            if exact:
                return [("output", exactly)]
            off = float("nan") if point["off"] == "nan" else float(point["off"])
            return [("output", (exactly * (1 + 1e-6 + off)).float())]

        return Work(lambda: None, read_values)


def test_a_variant_with_wrong_values_is_named_with_its_error() -> None:
    timer, signature = VariantTimer("cpu", {"wrong": Wrong()}), Signature.of("wrong", x=1)
    default = {"off": "0"}
    assert timer.check_values(signature, {"off": "1e-6"}, default) is None
    found = timer.check_values(signature, {"off": "0.1"}, default)
    assert found is not None
    assert found.startswith("output is off by 1.0e-01; the default by")
    assert timer.check_values(signature, {"off": "nan"}, default) is not None


def test_a_ranking_needs_more_than_noise() -> None:
    assert is_significant([1.0] * 5, [2.0] * 5)
    assert not is_significant([1.0] * 4, [2.0] * 4)
    assert not is_significant([1.0, 1.0, 1.0, 3.0, 3.0], [2.0] * 5)
    assert not is_significant([1.0] * 9, [1.0] * 9)


def test_turns_go_on_until_the_ranking_is_clear() -> None:
    calls: list[str] = []
    works = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    clock = Clock(get("cpu"), "cpu")
    ticks = iter(range(10**6))
    clock.measure_seconds = lambda work: (work(), float(next(ticks) % 2))[1]  # type: ignore[assignment, method-assign]
    times = take_turns_until_significant(works, clock, ("a", "b"), min_turns=5, max_turns=7, seconds=60)
    # The first of a turn is the faster, and each turn begins with the other one: nobody wins, so all turns are taken.
    assert len(times.times_us["a"]) == 7
    assert calls[4:8] == ["a", "b", "b", "a"]


def test_the_flushed_buffer_is_not_empty_and_the_load_of_others_is_a_share() -> None:
    assert find_cache_bytes("cpu") >= 1 << 15
    assert 0.0 <= OtherPrograms().measure_share() <= 1.0
