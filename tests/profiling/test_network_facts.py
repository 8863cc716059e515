"""Facts about a network, taken from one training pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from viaduct.profiling.network_facts import (
    NetworkFacts,
    describe_pass,
    describe_precision,
    find_tensor,
    is_capturing,
    unwrap,
)


@pytest.mark.parametrize(("answer", "expected"), [(lambda: True, True), (lambda: False, False), (None, False)])
def test_capturing_is_asked_of_the_device_itself(answer: Any, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = SimpleNamespace(**({"is_current_stream_capturing": answer} if answer else {}))
    monkeypatch.setattr(torch, "npu", vendor, raising=False)
    assert is_capturing("npu") is expected
    assert not is_capturing("cpu")


def test_a_tensor_is_not_searched_deeper_than_three_levels() -> None:
    x = torch.ones(2)
    assert find_tensor([[[[x]]]]) is x
    assert find_tensor([[[[[x]]]]]) is None
    assert find_tensor([None, "text", {"images": (x,)}]) is x


def test_a_batch_given_by_keyword_is_counted_and_a_number_is_no_batch() -> None:
    network = nn.Linear(3, 4)
    assert describe_pass(network, [], {"x": torch.ones(7, 3)}).batch == 7
    assert describe_pass(network, [torch.tensor(1.0)], {}).batch is None


def test_the_network_within_its_wrappers_is_named() -> None:
    network = nn.Sequential(nn.Linear(3, 4))
    compiled = type("OptimizedModule", (SimpleNamespace,), {})(_orig_mod=nn.DataParallel(network))
    assert unwrap(compiled) is network
    assert describe_pass(nn.DataParallel(network), [torch.ones(2, 3)], {}).network == "Sequential"


def test_the_precision_is_that_of_autocast_where_it_is_on() -> None:
    weight = torch.ones(2)
    assert describe_precision(weight) == "float32"
    assert describe_precision(weight.to(torch.bfloat16)) == "bfloat16"
    with torch.autocast("cpu", torch.bfloat16):
        assert describe_precision(weight) == "autocast bfloat16"


def test_accumulated_passes_count_as_samples_of_one_step() -> None:
    assert NetworkFacts("Net", batch=8, precision="float32", passes=3).samples_per_step == 24
    assert NetworkFacts("Net", batch=None, precision="float32", passes=3).samples_per_step is None
