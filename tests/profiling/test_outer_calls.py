"""Calls of a script's networks, as opposed to calls of the modules inside them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from viaduct.profiling.outer_calls import OuterCalls


def test_copied_and_pickled_networks_have_no_hooks_of_viaduct() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    met: list[Any] = []
    with OuterCalls(met.append, lambda *call: None) as calls:
        net(torch.ones(1, 2))
        calls.observe_only_called_classes()
        other = copy.deepcopy(net)
        assert b"viaduct" not in pickle.dumps(net)
        torch.save(net, io.BytesIO())
        other(torch.ones(1, 2))
        nn.Linear(2, 2)(torch.ones(1, 2))  # of a class that was not met from outside
    assert met == [net, other]
    assert "__call__" not in vars(nn.Sequential)


class Doubling(nn.Linear):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().__call__(*args, **kwargs)


@pytest.mark.parametrize("narrowed", [False, True])
def test_layers_within_a_network_and_modules_without_parameters_are_not_reported(narrowed: bool) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    begun: list[Any] = []
    outputs: list[Any] = []
    with OuterCalls(begun.append, lambda *call: outputs.append(call[3])) as calls:
        network(torch.ones(1, 2))
        if narrowed:
            calls.observe_only_called_classes()
        output = network(torch.ones(1, 2))
        nn.ReLU()(torch.ones(1, 2))
    assert begun == [network, network]
    assert outputs[1] is output


@pytest.mark.parametrize("narrowed", [False, True])
def test_a_call_that_raises_is_reported_without_an_output(narrowed: bool) -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    outputs: list[Any] = []
    with OuterCalls(lambda *call: None, lambda *call: outputs.append(call[3])) as calls:
        network(torch.ones(1, 2))
        if narrowed:
            calls.observe_only_called_classes()
        with pytest.raises(RuntimeError):
            network(torch.ones(1, 3))
        network(torch.ones(1, 2))
    assert [output is None for output in outputs] == [False, True, False]


def test_a_class_has_its_own_call_again_at_the_end() -> None:
    original = Doubling.__call__
    network = Doubling(2, 2)
    with OuterCalls(lambda *call: None, lambda *call: None) as calls:
        expected = network(torch.ones(1, 2))
        calls.observe_only_called_classes()
        assert Doubling.__call__ is not original
        assert torch.equal(network(torch.ones(1, 2)), expected)
    assert vars(Doubling)["__call__"] is original


def test_all_modules_are_observed_until_a_network_was_called() -> None:
    begun: list[Any] = []
    with OuterCalls(begun.append, lambda *call: None) as calls:
        calls.observe_only_called_classes()
        network = nn.Linear(2, 2)
        network(torch.ones(1, 2))
    assert begun == [network]
