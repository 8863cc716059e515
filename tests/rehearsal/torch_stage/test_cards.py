"""Cards, the current card, and the memory counted on each."""

from __future__ import annotations

import threading

import pytest
import torch

from viaduct.rehearsal.torch_stage.cards import Cards, MemoryMeter, cards, resolve_card_index, to_cpu

DEVICE = "privateuseone"  # torch's name of the device until a stage renames it


@pytest.fixture(autouse=True)
def _four_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "device_name": DEVICE,
        "accepted_types": {DEVICE},
        "count": 4,
        "thread_state": threading.local(),
    }.items():
        monkeypatch.setattr(cards, name, value)


@pytest.mark.parametrize("index", [-1, 4])
def test_a_card_that_does_not_exist_is_not_made_the_current_one(index: int) -> None:
    with pytest.raises(RuntimeError, match=f"Invalid device ID: {index}. The rehearsal has 4 {DEVICE}"):
        cards.select(index)
    assert cards.current_index == 0


@pytest.mark.parametrize("device", ["cpu", True, 1.0, torch.device("meta")])
def test_another_device_is_no_card(device: object) -> None:
    with pytest.raises(ValueError, match=r"Expected a"):
        resolve_card_index(device)


def test_a_new_thread_begins_with_the_first_card() -> None:
    cards.select(2)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(cards.current_index))
    thread.start()
    thread.join()
    assert (seen, cards.current_index) == ([0], 2)


def test_a_device_without_a_number_is_the_current_card() -> None:
    cards.select(3)
    assert [resolve_card_index(device) for device in (None, -1, DEVICE, torch.device(DEVICE))] == [3] * 4
    assert [resolve_card_index(device) for device in (1, f"{DEVICE}:1", torch.device(DEVICE, 1))] == [1] * 3


def test_a_script_for_cuda_knows_its_device_as_cuda() -> None:
    assert (Cards("gpu").name_in_script, Cards("mlu").name_in_script) == ("cuda", "mlu")


def test_a_meter_keeps_the_peak_and_the_totals() -> None:
    meter = MemoryMeter()
    for size in (100, 50):
        meter.allocate(size)
    meter.release(100)
    meter.allocate(10)
    assert (meter.current_bytes, meter.peak_bytes) == (60, 150)
    assert (meter.allocations, meter.bytes_allocated, meter.releases, meter.bytes_released) == (3, 160, 1, 100)


def test_values_that_are_on_no_card_stay_unchanged_on_the_cpu() -> None:
    tensor = torch.ones(1)
    assert to_cpu(tensor) is tensor
    assert to_cpu("sum") == "sum"
