from __future__ import annotations

import pytest
import torch

from viaduct import devices
from viaduct.devices import card_check, cpu


def test_a_wrong_gradient_is_not_hidden_by_the_weight_it_is_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = card_check._run_step
    steps = 0

    def double_the_second(network: torch.nn.Module, torch_device: torch.device, precision: str) -> None:
        nonlocal steps
        steps += 1
        before = network[5].bias.detach().clone()
        honest(network, torch_device, precision)
        if steps == 2:
            network[5].bias.data.add_(network[5].bias.detach() - before)

    monkeypatch.setattr(card_check, "_run_step", double_the_second)
    result = card_check._check_precision(cpu, 0, "fp32")
    assert not result.ok
    assert result.reason == "differs from the CPU's fp32 by 1, more than 0.01"


def test_a_step_that_ends_in_nan_fails() -> None:
    lost, finite = {"weight": torch.tensor([float("nan")])}, {"weight": torch.tensor([1.0])}
    assert card_check._find_largest_error(lost, finite) == float("inf")


def test_a_card_that_raises_an_error_fails_with_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> None:
        raise RuntimeError("aicore exception\ndump follows")

    monkeypatch.setattr(cpu, "synchronize", hang)
    results = card_check.check_cards(cpu)
    assert {result.reason for result in results} == {"RuntimeError: aicore exception"}
    assert not any(result.ok for result in results)


def test_the_check_leaves_the_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    card_check.check_cards(cpu)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", devices.names())
def test_every_present_device_passes_in_all_its_precisions(name: str) -> None:
    device = devices.get(name)
    results = card_check.check_cards(device)
    assert len(results) == device.count_cards() * (1 + len(device.list_native_dtypes() if results else ()))
    assert [result.reason for result in results if not result.ok] == []
    assert all(result.milliseconds and result.milliseconds > 0 for result in results)


def test_bf16_on_the_cpu_agrees_whether_or_not_the_processor_is_fast_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "list_native_dtypes", lambda: ("bf16",))
    fp32, bf16 = card_check.check_cards(cpu)
    assert fp32.difference == 0
    assert bf16.ok
    assert bf16.difference is not None
    assert bf16.difference > 0
