"""What every network of the room promises: its name, its size, its work, its shapes, its layout."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import torch
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
    "resnet50_book": 25_559_081,
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
    "resnet50_book": 4_089_186_304,
}
ONE_OF_EACH_KIND = ["resnet18_v1", "resnet50_v1", "resnet50_stem3", "resnet20_cifar", "resnet50_book"]


def on_paper(name: str, classes: int = 1001) -> nn.Module:
    """A network with shapes but without values, so that it costs nothing."""
    with torch.device("meta"):
        return models.build(name, classes)


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
    """Where the last gamma is zero, nothing behind it would get a gradient at the first step."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
    return network


def test_importing_the_room_does_not_import_torch() -> None:
    program = "import sys, viaduct.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_unknown_name_offers_the_closest() -> None:
    with pytest.raises(UnknownName, match="Closest is 'resnet50_v1'"):
        models.build("resnet5O_v1")


def test_a_network_without_classes_is_refused() -> None:
    with pytest.raises(BadValue, match="0 classes"):
        models.build("resnet18_v1", classes=0)


def test_every_name_appears_once_and_builds() -> None:
    names = models.names()
    assert len(names) == len(set(names)) == 14
    for name in names:
        assert on_paper(name, classes=7)(torch.empty(2, 3, 32, 32, device="meta")).shape == (2, 7)


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_parameters_are_the_references(name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_paper(name).parameters()) == expected


@pytest.mark.parametrize(("name", "expected"), PARAMETERS_OF_TEN_CLASSES.items())
def test_parameters_with_ten_classes_are_the_references(name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_paper(name, classes=10).parameters()) == expected


@pytest.mark.parametrize(("name", "expected"), PRODUCTS.items())
def test_multiplications_at_224_are_the_references(name: str, expected: int) -> None:
    assert multiplications(on_paper(name), torch.empty(1, 3, 224, 224, device="meta")) == expected


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
@pytest.mark.parametrize("size", [(32, 32), (33, 47), (224, 224), (225, 160)])
def test_any_picture_gives_one_row_of_logits(name: str, size: tuple[int, int]) -> None:
    assert on_paper(name)(torch.empty(3, 3, *size, device="meta")).shape == (3, 1001)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_layer_keeps_channels_last(name: str) -> None:
    network = models.build(name, classes=10).to(memory_format=torch.channels_last)
    broken = []

    def check(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if output.dim() == 4 and not output.is_contiguous(memory_format=torch.channels_last):
            broken.append(layer)

    for layer in network.modules():
        layer.register_forward_hook(check)
    network(torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last))
    assert not broken


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_only_lopsided_convolutions_copy(name: str) -> None:
    network = on_paper(name).to(memory_format=torch.channels_last)
    images = torch.empty(2, 3, 64, 64, device="meta").to(memory_format=torch.channels_last)
    with Operators() as operators:
        network(images)
    copies = {operator: operators.seen[operator] for operator in ("clone", "copy_", "_to_copy")}
    assert not any(copies.values()), copies
    # The book's stem and the first blocks of its last three stages pad (2, 3) and (0, 1).
    assert operators.seen["constant_pad_nd"] == (4 if name == "resnet50_book" else 0)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    network = with_gamma_of_one(models.build(name, classes=10))
    logits = network(torch.randn(2, 3, 32, 32))
    nn.functional.cross_entropy(logits, torch.arange(2)).backward()
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
def test_compiled_network_gives_the_same_logits_and_gradients() -> None:
    torch.manual_seed(0)
    network = models.build("resnet20_cifar", classes=10).to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last)
    results = []
    for forward in (network, torch.compile(network, fullgraph=True)):
        network.zero_grad()
        logits = forward(images)
        logits.square().mean().backward()
        results.append((logits.detach(), network.stem.conv.weight.grad))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
