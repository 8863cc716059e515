"""What scripts use around operators: each works on the stand-in, or is refused with a reason (docs/rehearse.md)."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.staged import on


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


@on("npu")
def test_what_is_refused_is_refused_in_a_sentence() -> None:
    x = torch.ones(1, 2, 128, 16, device="npu")
    with pytest.raises(NotImplementedError, match="A rehearsal does not capture NPU graphs"):
        torch.npu.NPUGraph()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"torch.compile is called with the backend 'inductor'. \[compile\]"):
        torch.compile(network().npu())
    with pytest.raises(NotImplementedError, match=r"flash_attention.default has no kernel for the CPU"):
        torch.ops.aten._scaled_dot_product_flash_attention(x, x, x)
    from torch.nn.attention.flex_attention import flex_attention

    with pytest.raises(ValueError, match="FlexAttention is only supported on"):
        flex_attention(x, x, x)


@on("cuda")
def test_factories_make_pinned_memory_and_scripted_code_still_finds_them() -> None:
    for made in (
        torch.empty(3, pin_memory=True),
        torch.zeros(2, 2, pin_memory=True),
        torch.tensor([1], pin_memory=True),
    ):
        assert made.is_pinned()
        assert made.device.type == "cpu"
    assert torch.zeros_like(torch.ones(2), pin_memory=True).tolist() == [0, 0]
    assert torch.ones(2).new_full((2,), 3.0, pin_memory=True).is_pinned()
    assert not torch.empty(3).is_pinned()


@on("cuda")
def test_scripted_and_traced_modules_compute_and_are_loaded_onto_the_device() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    x = torch.randn(5, 4)
    expected = network()(x)
    for module in (torch.jit.script(network().cuda()), torch.jit.trace(network().cuda(), x.cuda())):
        assert torch.equal(module(x.cuda()).cpu(), expected)
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        assert torch.jit.load(file, map_location="cuda")(x.cuda()).is_cuda
    made: Any = torch.jit.script(make_range)
    assert made(x.cuda()).tolist() == [1, 2, 3]


def make_range(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(3, device=x.device) + torch.zeros_like(torch.ones([3], device=x.device)) + torch.tensor(1)


@on("mlu")
def test_vmap_and_gradients_of_functions_are_those_of_the_cpu() -> None:
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of PyTorch's own use of torch.jit.script
    model, x = network(), torch.randn(5, 4)

    def loss(module: Any, parameters: Any, row: torch.Tensor) -> torch.Tensor:
        return functional_call(module, parameters, (row.unsqueeze(0),)).square().sum()

    results = []
    for place in ("cpu", "mlu"):
        placed = copy.deepcopy(model).to(place)
        parameters = {name: value.detach() for name, value in placed.named_parameters()}
        rows = x.to(place)
        each = vmap(grad(lambda p, row: loss(placed, p, row)), in_dims=(None, 0))(parameters, rows)  # noqa: B023
        second = [transform(lambda y: y.sin().prod())(rows[0]) for transform in (jacrev, jacfwd, hessian)]
        results.append([value.cpu() for value in (*each.values(), *second)])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@on("cuda")
def test_export_and_flex_attention_trace_tensors_of_the_device() -> None:
    warnings.filterwarnings("ignore")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    x = torch.randn(5, 4, device="cuda")
    assert torch.export.export(network().cuda(), (x,)).module()(x).is_cuda
    q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device="cuda")
    output = flex_attention(q, q, q, block_mask=mask)
    output.sum().backward()
    expected = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    assert q.grad is not None


@on("npu")
def test_packed_sequences_train_and_need_their_lengths_on_the_host() -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(0)
    x = torch.randn(5, 2, 4)
    results = []
    for place in ("cpu", "npu"):
        torch.manual_seed(1)
        layer = torch.nn.LSTM(4, 6).to(place)
        output, _ = pad_packed_sequence(layer(pack_padded_sequence(x.to(place), [5, 3]))[0])
        output.sum().backward()
        results.append([output.detach().cpu(), *(p.grad.cpu() for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        pack_padded_sequence(x.npu(), torch.tensor([5, 3], device="npu"))


@on("mlu")
def test_every_optimizer_steps_as_on_the_cpu() -> None:
    x = torch.randn(5, 4)
    choices: list[tuple[str, dict[str, Any]]] = [
        *((name, {way: True}) for name in ("SGD", "Adam", "AdamW", "Adagrad") for way in ("foreach", "fused")),
        *((name, {"foreach": True}) for name in ("NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "RMSprop", "Rprop")),
        ("LBFGS", {}),
    ]  # foreach is named, for PyTorch chooses it by itself on an accelerator only
    for name, options in choices:
        weights = []
        for place in ("cpu", "mlu"):
            model, rows = network().to(place), x.to(place)
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)

            def closure(model: Any = model, rows: Any = rows, optimizer: Any = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss: torch.Tensor = model(rows).square().sum()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
            weights.append([p.detach().cpu() for p in model.parameters()])
        assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True)), (name, options)


@on("npu")
def test_fused_attention_of_the_npu_is_attention_in_every_layout() -> None:
    import torch_npu

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 8, device="npu") for _ in range(3))  # batch, heads, sequence, width
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    causal = {"atten_mask": torch.ones(2048, 2048, device="npu").triu(1).bool(), "sparse_mode": 3, "scale": 0.3}
    there = {
        "BNSD": lambda x: x,
        "BSND": lambda x: x.transpose(1, 2),
        "BSH": lambda x: x.transpose(1, 2).flatten(2),
        "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
    }
    for layout, turn in there.items():
        output = torch_npu.npu_fusion_attention(turn(q), turn(k), turn(v), 3, layout, **causal)[0]
        torch.testing.assert_close(output, turn(expected))
    rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    ends = {"actual_seq_qlen": (6, 12), "actual_seq_kvlen": (6, 12)}
    output = torch_npu.npu_fusion_attention(*rows, 3, "TND", **causal, **ends)[0]
    torch.testing.assert_close(output, expected.transpose(1, 2).flatten(0, 1))
    with pytest.raises(NotImplementedError, match="has no sparse_mode 4"):
        torch_npu.npu_fusion_attention(q, k, v, 3, "BNSD", sparse_mode=4)


@on("cuda")
def test_the_submodules_of_torch_cuda_are_the_devices_too() -> None:
    state = torch.cuda.random.get_rng_state()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.random.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), drawn)
    assert torch.cuda.memory.memory_allocated() > 0
    assert torch.cuda.streams.Stream is torch.cuda.Stream
