"""Choices at work in a network: same names, same values within rounding, default for other calls."""

from __future__ import annotations

import torch
from torch import nn

from viaduct.kernels.choices import clear_choices, find_choice
from viaduct.tuning.applying import apply_choices, observe_calls
from viaduct.tuning.operators import conv2d, kernel, optimizer


def make_network() -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    network: nn.Module = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def test_a_choice_replaces_the_forward_pass_of_its_calls_alone() -> None:
    network = make_network()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    names, expected = list(network.state_dict()), network(x).detach()
    calls = observe_calls(network, lambda: network(x))
    assert [call.name for call in calls] == ["0", "2", "5"]
    update = torch.optim.SGD(network.parameters(), lr=0.1, fused=True)
    signature = optimizer.describe(update)
    assert signature is not None
    choices = {
        calls[1].signature.key: {**conv2d.DEFAULT, "implementation": "matrix_product"},
        signature.key: {"implementation": "loop"},
        "conv2d of somebody else's": {"layout": "contiguous"},
    }
    applied = apply_choices(calls, update, choices)
    assert applied.describe() == "2 choices: 1 module, optimizer loop"
    assert set(applied.choices) == set(choices) - {"conv2d of somebody else's"}
    assert torch.allclose(network(x), expected, atol=1e-5)
    assert list(network.state_dict()) == names
    forward = applied.forwards[0]
    used: list[int] = []
    original = forward.variants[calls[1].input_key]
    forward.variants[calls[1].input_key] = lambda module, x: (used.append(1), original(module, x))[1]
    network(x).sum().backward()
    assert used == [1]
    with torch.no_grad():
        network(x)
    network(torch.randn(3, 3, 8, 8))
    assert used == [1], "an evaluation and another batch size are not what was tuned"
    applied.switch(False)
    network(x)
    assert used == [1]
    assert update.param_groups[0]["fused"]
    applied.remove()
    assert "forward" not in vars(network[2])  # type: ignore[index]


def test_a_module_whose_forward_pass_is_replaced_already_is_left_alone() -> None:
    network = make_network()
    network[0].forward = network[0].forward  # type: ignore[index]
    calls = observe_calls(network, lambda: network(torch.randn(2, 3, 8, 8)))
    assert [call.name for call in calls] == ["2", "5"]


def test_launch_parameters_of_kernels_go_into_their_table_and_out_again() -> None:
    launch = ("scale_shift", (1024, 64, "bfloat16"))
    signature = kernel.describe(launch)
    assert kernel.read_key(signature.key) == launch
    assert kernel.read_key("conv2d x=1") is None
    chosen = {signature.key: {"rows": 8}, "conv2d x=1x3x8x8": {"layout": "contiguous"}}
    assert not apply_choices([], None, chosen).choices, "this network runs on no kernels of our own"
    applied = apply_choices([], None, chosen, uses_own_kernels=True)
    try:
        assert applied.describe() == "1 choice: 1 kernel launch"
        assert find_choice(*launch) == {"rows": 8}
        applied.switch(False)
        assert find_choice(*launch) is None
    finally:
        clear_choices()
