"""Name, size, work, shapes and memory layout of every network."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from viaduct import models
from viaduct.errors import BadValue, UnknownName

PARAMETERS = {
    "resnet18_v1": 11_694_249,
    "resnet34_v1": 21_802_409,
    "resnet50_v1": 25_559_081,
    "resnet101_v1": 44_551_209,
    "resnet152_v1": 60_194_857,
    "resnet200_v1": 64_675_881,
    "resnet18_v2": 11_692_329,
    "resnet34_v2": 21_800_489,
    "resnet50_v2": 25_551_401,
    "resnet101_v2": 44_543_529,
    "resnet152_v2": 60_187_177,
    "resnet200_v2": 64_668_201,
    "resnet50_book": 25_559_081,
    "resnet50_v15": 25_559_081,
    "resnext50": 25_030_953,
    "amoebanet_d": 46_763_161,
}
PARAMETERS_OF_TEN_CLASSES = {
    "resnet56_cifar": 856_058,
    "resnet50_v1": 23_528_522,
    "resnet50_book": 23_528_522,
    # The stem has 64 * 3 * (7 * 7 - 3 * 3) weights fewer.
    "resnet50_stem3": 23_520_842,
}
PRODUCTS = {
    "resnet18_v1": 1_826_918_912,
    "resnet34_v1": 3_676_606_976,
    "resnet50_v1": 4_089_186_304,
    "resnet101_v1": 7_801_407_488,
    "resnet152_v1": 11_513_628_672,
    "resnet200_v1": 15_007_483_904,
    "resnet18_v2": 1_826_918_912,
    "resnet34_v2": 3_676_606_976,
    "resnet50_v2": 4_089_186_304,
    "resnet101_v2": 7_801_407_488,
    "resnet152_v2": 11_513_628_672,
    "resnet200_v2": 15_007_483_904,
    "resnet50_book": 4_089_186_304,
    "resnet50_v15": 4_089_186_304,
    "resnext50": 4_230_481_920,
    "amoebanet_d": 5_715_773_792,
}
# Names with the options that make them quick to run on a CPU.
ONE_OF_EACH_KIND: dict[str, dict[str, Any]] = {
    "resnet18_v1": {},
    "resnet50_v1": {},
    "resnet18_v2": {},
    "resnet50_v2": {},
    "resnet50_stem3": {},
    "resnet20_cifar": {},
    "resnet50_book": {},
    "resnet50_v15": {},
    "resnext50": {},
    "amoebanet_d": {"filters": 32, "image": 96},
}
# Copies for padding on images of 64: of the stem, and of the first blocks of the last three stages; in AmoebaNet of
# the 3x3 convolutions that see 16, 8 and 4 cells, and of the odd rows and columns of 31.
LOPSIDED = {"resnet50_book": 4, "resnet50_v15": 4, "resnext50": 3, "amoebanet_d": 4}


def on_paper(name: str, classes: int = 1001, **options: Any) -> nn.Module:
    """A network with shapes but without values, so that it costs nothing."""
    with torch.device("meta"):
        return models.build(name, classes, **options).eval()


def multiplications(network: nn.Module, images: Tensor) -> int:
    total = 0

    def add(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal total
        assert isinstance(layer, (nn.Conv2d, nn.Linear))
        total += layer.weight[0].numel() * output.numel()

    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(add)
    network(images)
    return total


class Operators(TorchDispatchMode):
    """Counts the kernels that run inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.seen[function.overloadpacket.__name__] += 1
        return function(*arguments, **(keywords or {}))


def with_gamma_of_one(network: nn.Module) -> nn.Module:
    """Set zero gammas to one: nothing behind them would get a gradient at the first step."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
    return network


def test_importing_the_package_of_networks_does_not_import_torch() -> None:
    program = "import sys, viaduct.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_unknown_name_offers_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnet50_v1'"):
        models.build("resnet5O_v1")


def test_a_network_without_classes_is_refused() -> None:
    with pytest.raises(BadValue, match="0 classes"):
        models.build("resnet18_v1", classes=0)


def test_values_that_make_no_network_are_named() -> None:
    for classes in ("5", 2.5, None, True):
        with pytest.raises(BadValue, match=f"classes is {classes!r}; it must be a whole number"):
            models.build("resnet18_v1", classes=classes)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="given by its name, not by None"):
        models.build(None)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="cannot have 1,000,001 classes"):
        models.build("resnet18_v1", classes=1_000_001)


def test_an_option_that_a_network_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownName, match="Closest is 'cells'"):
        models.build("amoebanet_d", cell=3)
    with pytest.raises(UnknownName, match="no option of resnet18_v1 called 'aux'"):
        models.build("resnet18_v1", aux=False)


def test_options_reach_the_network() -> None:
    network = models.build("resnet18_v1", classes=3, blocks=(1,), filters=(4,))
    assert network(torch.randn(2, 3, 16, 16)).shape == (2, 3)
    assert len(network.stages) == 1


def test_every_name_appears_once_and_builds_with_a_classifier_called_head() -> None:
    names = models.names()
    assert len(names) == len(set(names)) == 32
    for name in names:
        network = on_paper(name, classes=7)
        assert isinstance(network.head, nn.Linear)
        assert network(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 7)


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameters_are_the_references(name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_paper(name).parameters()) == expected


def test_amoebanet_without_its_second_head_has_the_references_parameters() -> None:
    network = on_paper("amoebanet_d", aux=False)
    assert sum(parameter.numel() for parameter in network.parameters()) == 46_099_177


@pytest.mark.parametrize(("name", "expected"), PARAMETERS_OF_TEN_CLASSES.items())
def test_parameters_with_ten_classes_are_the_references(name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_paper(name, classes=10).parameters()) == expected


@pytest.mark.parametrize(("name", "expected"), PRODUCTS.items())
def test_multiplications_at_224_are_the_references(name: str, expected: int) -> None:
    assert multiplications(on_paper(name), torch.empty(1, 3, 224, 224, device="meta")) == expected


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("size", [(32, 32), (33, 47), (224, 224), (225, 160)])
def test_any_image_gives_one_row_of_logits(name: str, size: tuple[int, int]) -> None:
    assert on_paper(name)(torch.empty(3, 3, *size, device="meta")).shape == (3, 1001)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_layer_keeps_channels_last(name: str) -> None:
    network = models.build(name, classes=10, **ONE_OF_EACH_KIND[name]).to(memory_format=torch.channels_last)
    broken = []

    def check(layer: nn.Module, inputs: tuple[Tensor], output: Tensor | tuple[Tensor, Tensor]) -> None:
        if (
            isinstance(output, Tensor)
            and output.dim() == 4
            and not output.is_contiguous(memory_format=torch.channels_last)
        ):
            broken.append(layer)

    for layer in network.modules():
        layer.register_forward_hook(check)
    network(torch.randn(2, 3, 96, 96).to(memory_format=torch.channels_last))
    assert not broken


@pytest.mark.parametrize("name", ["resnet18_v2", "resnet50_v15", "resnext50", "amoebanet_d"])
def test_both_layouts_give_the_same_logits(name: str) -> None:
    network = models.build(name, classes=10, **ONE_OF_EACH_KIND[name]).eval()
    images = torch.randn(2, 3, 45, 52)
    with torch.no_grad():
        expected = network(images)
        logits = network.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_only_unequally_padded_convolutions_copy(name: str) -> None:
    network = on_paper(name).to(memory_format=torch.channels_last)
    images = torch.empty(2, 3, 64, 64, device="meta").to(memory_format=torch.channels_last)
    with Operators() as operators:
        network(images)
    copies = {operator: operators.seen[operator] for operator in ("clone", "copy_", "_to_copy")}
    assert not any(copies.values()), copies
    assert operators.seen["constant_pad_nd"] == LOPSIDED.get(name, 0)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    network = with_gamma_of_one(models.build(name, classes=10, **ONE_OF_EACH_KIND[name]))
    size = 96 if name == "amoebanet_d" else 32
    logits = network(torch.randn(2, 3, size, size))
    losses = [F.cross_entropy(each, torch.arange(2)) for each in (logits if isinstance(logits, tuple) else [logits])]
    sum(losses).backward()
    still = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert not still


def test_logits_are_float32_under_autocast_and_float64_in_a_double_network() -> None:
    network = models.build("resnet20_cifar", classes=10)
    images = torch.randn(2, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        assert network(images).dtype == torch.float32
    assert network.double()(images.double()).dtype == torch.float64


def test_the_compiler_sees_one_graph_at_every_size() -> None:
    network = models.build("resnet20_cifar", classes=10).eval()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for images in (torch.randn(2, 3, 32, 32), torch.randn(2, 3, 45, 64)):
        torch.testing.assert_close(compiled(images), network(images))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("resnet20_cifar", {}, 32),
        ("resnet18_v2", {"blocks": (1, 1), "filters": (16, 32)}, 32),
        ("resnext50", {"blocks": (1, 1), "filters": (32, 64)}, 32),
        ("amoebanet_d", {"cells": 3, "filters": 32, "image": 75, "dropout_keep": 1.0}, 75),
    ],
)
def test_compiled_network_gives_the_same_logits_and_gradients(name: str, options: dict[str, Any], size: int) -> None:
    # In double precision: rounding alone may push a cell over the kink of a ReLU, and its gradient with it.
    torch.manual_seed(0)
    network = models.build(name, classes=10, **options).double().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, size, size, dtype=torch.float64).to(memory_format=torch.channels_last)
    first = next(network.parameters())
    results = []
    for forward in (network, torch.compile(network, fullgraph=True)):
        network.zero_grad()
        answer = forward(images)
        logits = torch.cat(answer) if isinstance(answer, tuple) else answer
        logits.square().mean().backward()
        results.append((logits.detach(), first.grad))
    largest = max(result.abs().max().item() for result in results[0])
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-10 * largest)
