"""oneDNN's overrun is looked for in its own log: which weight gradients it computes, and with which stride."""

from __future__ import annotations

import itertools
import platform
import re
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from forked_viaduct import python, viaduct
from viaduct.devices.strided_pointwise import compute_gradients
from viaduct.rehearsal.stage import is_new_enough

EVERY_X86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64") or not torch.backends.mkldnn.is_available(),
    reason="the overrun is in oneDNN's kernels for x86",
)
# The most that oneDNN may use: with AVX2 it writes past the end below 8 channels, with AVX-512 below 16.
ISAS = pytest.mark.parametrize("isa", ["AVX2", "ALL"])
MASKED = {"AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}, "ALL": {}}
LOGGED = {"ONEDNN_VERBOSE": "1"}

RECIPE = """
import torch
from torch import nn
from viaduct.recipes import Recipe, Sgd, Shapes

class Shortcut(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * channels, channels, 1, 1))

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight, stride=2)

def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 4, 1, stride=2), Shortcut(4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 1, stride=(2, 1)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, classes),
    )

recipe = Recipe(
    model=network,
    data=Shapes(global_batch=16, size=32, train_images=48, validation_images=16),
    optimizer=Sgd(lr=0.01),
    epochs=1,
)
"""

REHEARSED = """
import torch
from torch import nn
from viaduct.rehearsal.torch_stage import install, install_cuda_as_cpu

{install}
layer = nn.Conv2d(4, 8, 1, stride=2).to("{name}", memory_format=torch.channels_last)
for turn in range(3):
    layer(torch.randn(16, 4, 16, 16).to("{name}", memory_format=torch.channels_last)).square().sum().backward()
"""


def weight_gradients(log: str) -> list[tuple[int, int, int]]:
    """Return input channels, strides down and across of every 1x1 weight gradient that oneDNN has computed."""
    found = re.findall(r"backward_weights,.*?_ic(\d+)oc\d+_ih\d+oh\d+kh1sh(\d+)\w*_iw\d+ow\d+kw1sw(\d+)", log)
    return [(int(channels), int(down), int(across)) for channels, down, across in found]


def check_log(log: str, precision: str = "fp32") -> None:
    gradients = weight_gradients(log)
    if precision == "fp32":  # without AVX-512 torch computes bf16 without oneDNN
        assert gradients, f"no weight gradient in the log: {log[-2000:]}"
    assert [shape for shape in gradients if shape[0] < 16 and shape[1:] != (1, 1)] == []


@EVERY_X86
@ISAS
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_layer_of_a_training_overruns(tmp_path: Path, isa: str, precision: str) -> None:
    (tmp_path / "own.py").write_text(RECIPE)
    words = ("train", "own.py", "--device", "cpu", "--precision", precision, "--run", "run")
    done = viaduct(*words, cwd=tmp_path, **LOGGED, **MASKED[isa])
    assert done.returncode == 0, done.stderr
    check_log(done.stdout, precision)


@EVERY_X86
@ISAS
@pytest.mark.skipif(not is_new_enough(torch.__version__), reason="a rehearsal of PyTorch scripts needs torch 2.13")
@pytest.mark.parametrize(
    ("name", "install"), [("npu", "install('npu')"), ("mlu", "install('mlu')"), ("cuda", "install_cuda_as_cpu()")]
)
def test_no_layer_of_a_rehearsal_overruns(isa: str, name: str, install: str) -> None:
    settings = f"import os\nos.environ.update({LOGGED | MASKED[isa]!r})\n"
    done = python(settings + textwrap.dedent(REHEARSED).format(name=name, install=install))
    assert done.returncode == 0, done.stderr
    check_log(done.stdout)


def reference(arguments: tuple[Tensor, ...], *others: object) -> tuple[Tensor | None, ...]:
    doubled = (tensor.double().contiguous() for tensor in arguments)
    made: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(*doubled, *others)
    return made


@pytest.mark.parametrize("mask", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("channels", [1, 3, 15, 16])
@pytest.mark.parametrize(
    ("size", "stride"), [((8, 8), (2, 2)), ((7, 9), (2, 2)), ((6, 9), (3,)), ((4, 6), (1, 3)), ((12,), (2,))]
)
def test_the_gradients_are_those_of_the_convolution(
    size: tuple[int, ...], stride: tuple[int, ...], channels: int, mask: tuple[bool, ...]
) -> None:
    layout = torch.channels_last if len(size) == 2 else torch.contiguous_format
    x = torch.randn(2, channels, *size).contiguous(memory_format=layout)
    weight = torch.randn(5, channels, *(1 for _ in size))
    steps = stride * len(size) if len(stride) == 1 else stride
    gradient = torch.randn(2, 5, *(-(-pixels // step) for pixels, step in zip(size, steps, strict=True)))
    none, once = [0] * len(size), [1] * len(size)
    others = ([5], list(stride), none, once, False, none, 1, list(mask))
    made = compute_gradients(gradient.contiguous(memory_format=layout), x, weight, *others)  # type: ignore[arg-type]
    for wanted, tensor, expected in zip(mask, made, reference((gradient, x, weight), *others), strict=True):
        if wanted:
            assert tensor is not None
            assert expected is not None
            torch.testing.assert_close(tensor.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_transposed_convolution_is_left_alone() -> None:
    layer = torch.nn.ConvTranspose2d(4, 5, 1, stride=2)
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    made = layer(x)
    gradient = torch.randn_like(made)
    expected = torch.autograd.grad(made, (x, layer.weight, layer.bias), gradient)
    others = ([5], [2, 2], [0, 0], [1, 1], True, [0, 0], 1, [True, True, True])
    found = compute_gradients(gradient, x.detach(), layer.weight.detach(), *others)  # type: ignore[arg-type]
    for tensor, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(tensor, wanted)
