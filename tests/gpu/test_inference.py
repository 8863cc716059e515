"""Inference on an NVIDIA card: captured, fused and on kernels of our own, it answers as the network does."""

from __future__ import annotations

import pytest
import torch

from handover.test_folding import randomise_norms
from viaduct import models
from viaduct.handover.engine import capture_pass
from viaduct.handover.folding import fold_batch_norms
from viaduct.handover.fusing import FusedConv2d, choose_kernels, fuse_convolutions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.process,  # Triton asks for libraries
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Triton
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["resnet50_v1", "resnet18_v2", "resnet50_v15", "resnext50"])
def test_a_captured_pass_computes_what_the_network_does(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = randomise_norms(models.build(name, classes=10))
    card = torch.device("cuda")
    inputs = torch.randn(5, 3, 96, 96)
    with torch.inference_mode():
        expected = network(inputs)
        fused = fuse_convolutions(fold_batch_norms(network, 96)).to(card, memory_format=torch.channels_last).to(dtype)
        choose_kernels(fused, 5, 96)
        captured = capture_pass(fused, 5, 96, card, dtype)
        captured.inputs.copy_(inputs)
        captured.graph.replay()
        found = captured.logits.float().cpu()
    kernels = {layer.kernel for layer in fused.modules() if isinstance(layer, FusedConv2d)}
    assert "cuDNN" in kernels
    scale = float(expected.abs().max())
    allowed = {torch.float32: 5e-3, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]  # float32 is TF32 here
    assert float((found - expected).abs().max()) < allowed * scale
    if name == "resnet50_v1" and dtype != torch.float32:
        assert "stem" in kernels


@pytest.mark.parametrize("shape", [(2, 64, 56, 56), (1, 96, 17, 31), (3, 8, 5, 4)])
def test_maxima_are_those_of_torch(shape: tuple[int, ...]) -> None:
    from viaduct.kernels.inference import max_pool
    from viaduct.kernels.pooling import Pool
    from viaduct.models.padding import max_pool_same

    images = torch.randn(shape, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    for size, stride in ((3, 2), (2, 2), (3, 1)):
        assert torch.equal(max_pool(images, Pool(size, stride, average=False)), max_pool_same(images, size, stride))


def test_the_stem_is_convolution_bias_and_relu() -> None:
    from viaduct.kernels.inference import stem_relu
    from viaduct.kernels.stem import fold_weight

    torch.manual_seed(1)
    images = torch.randn(3, 3, 64, 96, device="cuda", dtype=torch.float16).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(64, 3, 7, 7, device="cuda") / 12, torch.randn(64, device="cuda")
    expected = torch.conv2d(images.float(), weight, bias, 2, 3).relu()
    found = stem_relu(images, fold_weight(weight, 1, torch.float16), bias.half(), 3)
    assert torch.allclose(found.float(), expected, atol=2e-2, rtol=1e-2)
