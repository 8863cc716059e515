"""Attention on the stand-in is the CPU's, forward and backward."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional

from rehearsal.torch_stage.staged import on


@on("npu")
def test_attention_and_norms_are_those_of_the_cpu_bit_for_bit() -> None:

    torch.manual_seed(0)
    values = [torch.randn(2, 4, 16, 8) for _ in range(3)]
    mask = torch.rand(16, 16) > 0.3
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"dropout_p": 0.5}):
        results = []
        for device_name in ("cpu", "npu"):
            torch.manual_seed(1)
            inputs = [value.clone().to(device_name).requires_grad_() for value in values]
            placed = {name: value.to(device_name) if name == "attn_mask" else value for name, value in options.items()}
            output = functional.scaled_dot_product_attention(*inputs, **placed)
            output.square().sum().backward()
            results.append([output.detach().cpu(), *(x.grad.cpu() for x in inputs)])
        assert all(torch.equal(first, second) for first, second in zip(*results, strict=True)), options
    for layer in (torch.nn.LayerNorm(8), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm2d(4), torch.nn.GELU()):
        assert torch.equal(layer(values[0]), copy.deepcopy(layer).npu()(values[0].npu()).cpu()), layer


@on("cuda")
def test_transformers_compute_on_a_device_called_cuda_what_the_cpu_computes() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 2)
    twin = copy.deepcopy(model).cuda()
    x = torch.randn(2, 6, 16)
    for encoder, device_name in ((model, "cpu"), (twin, "cuda")):
        encoder(x.to(device_name)).square().mean().backward()
    assert all(torch.equal(p.grad, q.grad.cpu()) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    padding = torch.zeros(2, 6, dtype=torch.bool).index_fill(1, torch.tensor([5]), True)
    with torch.no_grad():
        padded = twin.eval()(x.cuda(), src_key_padding_mask=padding.cuda()).cpu()
    torch.testing.assert_close(padded[:, :5], model(x, src_key_padding_mask=padding)[:, :5])
    q = torch.randn(2, 2, 6, 8, device="cuda", requires_grad=True)
    for kernel in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(kernel):
            assert functional.scaled_dot_product_attention(q, q, q, is_causal=True).is_cuda
