"""Arithmetic on the stand-in: devices that must not mix, and results that equal the CPU's bit for bit."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.networks import have_equal_tensors, make_network, make_perceptron, train
from rehearsal.torch_stage.staged import on


@on("npu")
def test_tensors_of_two_devices_do_not_mix() -> None:
    card, host = torch.ones(2, 2, device="npu"), torch.ones(2, 2)
    words = r"Expected all tensors to be on the same device, but found at least two devices, npu:0 and (cpu|npu:1)!"
    for other in (host, torch.ones(2, 2, device="npu:1")):
        with pytest.raises(RuntimeError, match=words):
            card + other
        with pytest.raises(RuntimeError, match=words):
            torch.nn.functional.linear(card, other)
    with pytest.raises(RuntimeError, match=words):
        make_network().npu()(torch.ones(1, 3, 32, 32))
    assert (card + torch.tensor(1.0)).sum() == 8  # a number on the host goes with anything


@on("npu")
def test_a_host_tensor_is_copied_and_the_copy_is_not_the_host_tensor() -> None:
    host = torch.ones(3)
    card = host.npu()
    card += 1
    back = card.cpu()
    card += 1
    assert host.tolist() == [1, 1, 1]
    assert back.tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="can't convert npu:0 device type tensor to numpy"):
        card.numpy()


@on("npu")
def test_weights_after_training_are_those_of_the_cpu_bit_for_bit() -> None:
    for optimizer, options in (
        ("SGD", {"momentum": 0.9, "weight_decay": 1e-4}),
        ("SGD", {"momentum": 0.9, "fused": True}),
        ("Adam", {"foreach": True}),
        ("AdamW", {"fused": True}),
        ("RMSprop", {"foreach": False}),
    ):
        assert have_equal_tensors(train("cpu", optimizer, **options), train("npu:3", optimizer, **options)), (
            optimizer,
            options,
        )


@on("mlu")
def test_views_share_memory_and_in_place_operators_write_into_it() -> None:
    tensor = torch.arange(12.0, device="mlu").view(3, 4)
    part = tensor[1:, ::2]
    part.mul_(0).add_(7)
    tensor.t_()
    assert tensor.tolist() == [[0, 7, 7], [1, 5, 9], [2, 7, 7], [3, 7, 11]]
    assert part.device == tensor.device
    assert part._is_view()
    tensor.unsqueeze_(0).squeeze_(0)[0].zero_()
    assert tensor[0].tolist() == [0, 0, 0]
    assert tensor.view(torch.int32).dtype is torch.int32
    real = torch.view_as_real(torch.ones(2, dtype=torch.complex64, device="mlu")[1:])
    assert real.tolist() == [[1, 0]]


@on("npu")
def test_an_output_given_by_the_caller_is_filled_and_grows_from_nothing() -> None:
    x = torch.arange(4.0, device="npu")
    out = torch.empty(0, device="npu")
    assert torch.add(x, x, out=out) is out
    assert out.tolist() == [0, 2, 4, 6]
    torch.mul(x, 3, out=out)
    assert out.tolist() == [0, 3, 6, 9]
    assert out.resize_(6)[:4].tolist() == [0, 3, 6, 9]


@on("npu")
def test_indices_masks_and_integers_give_the_results_of_the_cpu() -> None:
    x = torch.arange(6.0, device="npu").view(3, 2)
    rows = torch.tensor([0, 2], device="npu")
    assert x[rows].tolist() == x[rows.cpu()].tolist() == [[0, 1], [4, 5]]
    x[x > 3] = -1
    x.index_add_(0, rows, torch.ones(2, 2, device="npu"))
    assert x.tolist() == [[1, 2], [2, 3], [0, 0]]
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.zeros(3)[rows]
    assert torch.nn.functional.one_hot(rows, 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert x.nonzero().device.type == "npu"
    assert bool((x == x).all())


@on("mlu")
def test_operators_that_only_accelerators_have_follow_their_formulas() -> None:
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        torch.manual_seed(0)
        model = kind(5, 7, num_layers=2, batch_first=True)
        twin = copy.deepcopy(model).mlu()
        x = torch.randn(3, 4, 5)
        first, second = model(x)[0], twin(x.mlu())[0]
        first.pow(2).sum().backward()
        second.pow(2).sum().backward()
        torch.testing.assert_close(first, second.cpu())
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad.cpu(), rtol=1e-4, atol=1e-6)


@on("npu")
def test_recomputed_activations_draw_the_same_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).npu()
    x = torch.randn(4, 8, device="npu", requires_grad=True)
    for reentrant in (True, False):
        grads = []
        for body in (lambda y: checkpoint(layer, y, use_reentrant=reentrant), layer):  # noqa: B023
            torch.manual_seed(5)
            x.grad = None
            body(x).sum().backward()
            grads.append(x.grad.cpu())
        assert torch.equal(*grads)


@on("npu")
def test_an_operator_without_a_kernel_is_named_in_one_line() -> None:
    with pytest.raises(NotImplementedError, match=r"aten.miopen_batch_norm.default has no kernel for the CPU"):
        torch.ops.aten.miopen_batch_norm(
            torch.ones(1, 2, 3, 3, device="npu"), *[torch.ones(2).npu()] * 4, True, 0.1, 1e-5
        )


@on("cuda")
def test_functions_of_pytorch_that_make_tensors_beside_their_input_find_the_device() -> None:

    torch.manual_seed(0)
    image = torch.randn(1, 2, 8, 8)
    results = []
    for device_name in ("cpu", "cuda"):
        torch.manual_seed(1)
        pooled = functional.fractional_max_pool2d(image.to(device_name), 2, output_size=4)
        rows, columns = torch.unravel_index(torch.tensor([5, 2], device=device_name), (2, 3))
        results.append([pooled.cpu(), rows.cpu(), columns.cpu()])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


@on("npu")
def test_dropout_draws_what_the_cpu_draws_fused_or_not() -> None:
    x = torch.randn(64)
    for call in (
        lambda y: torch.nn.functional.dropout(y, 0.3),
        lambda y: torch.nn.functional.dropout(y, 1.0),
        lambda y: torch.native_dropout(y, 0.3, True)[1],
        lambda y: torch.nn.functional.alpha_dropout(y, 0.3, training=True),
    ):
        drawn = []
        for device_name in ("cpu", "npu"):
            torch.manual_seed(2)
            drawn.append(call(x.to(device_name)).cpu())
        assert torch.equal(*drawn)


@on("npu")
def test_numbers_zeros_without_memory_and_kept_strides_come_out_as_on_the_cpu() -> None:
    x = torch.tensor([3.0, -5.0], device="npu", requires_grad=True)
    assert torch.autograd.grad(torch.sgn(x).sum(), x)[0].tolist() == [0, 0]
    assert torch.copysign(x, -2.0).tolist() == [-3, -5]
    assert torch.tensor([7], device="npu", dtype=torch.int32).remainder(5).dtype is torch.int32
    assert torch.mode(torch.tensor([1, 2, 2], device="npu")).values == 2
    turned = torch.zeros(2, 3, device="npu").t()
    assert turned.resize_(3, 2).stride() == (1, 3)


@on("npu")
def test_lazy_conjugates_are_read_as_conjugates() -> None:
    torch.manual_seed(0)
    host = torch.randn(3, 3, dtype=torch.complex64)
    card = host.npu()
    assert torch.equal(card.conj().cpu(), host.conj())
    assert torch.equal((card.conj() @ card).cpu(), host.conj() @ host)
    assert torch.equal(card.conj().imag.cpu(), host.conj().imag)
    card.conj().mul_(2)
    assert torch.equal(card.cpu(), host * 2)


@on("mlu")
def test_vmap_and_gradients_of_functions_are_those_of_the_cpu() -> None:
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of PyTorch's own use of torch.jit.script
    model, x = make_perceptron(), torch.randn(5, 4)

    def loss(module: Any, parameters: Any, row: torch.Tensor) -> torch.Tensor:
        return functional_call(module, parameters, (row.unsqueeze(0),)).square().sum()

    results = []
    for device_name in ("cpu", "mlu"):
        placed = copy.deepcopy(model).to(device_name)
        parameters = {name: value.detach() for name, value in placed.named_parameters()}
        rows = x.to(device_name)
        each = vmap(grad(lambda p, row: loss(placed, p, row)), in_dims=(None, 0))(parameters, rows)  # noqa: B023
        second = [transform(lambda y: y.sin().prod())(rows[0]) for transform in (jacrev, jacfwd, hessian)]
        results.append([value.cpu() for value in (*each.values(), *second)])
    assert all(torch.equal(first, other) for first, other in zip(*results, strict=True))


@on("npu")
def test_packed_sequences_train_and_need_their_lengths_on_the_host() -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    torch.manual_seed(0)
    x = torch.randn(5, 2, 4)
    results = []
    for device_name in ("cpu", "npu"):
        torch.manual_seed(1)
        layer = torch.nn.LSTM(4, 6).to(device_name)
        output, _ = pad_packed_sequence(layer(pack_padded_sequence(x.to(device_name), [5, 3]))[0])
        output.sum().backward()
        results.append([output.detach().cpu(), *(p.grad.cpu() for p in layer.parameters())])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        pack_padded_sequence(x.npu(), torch.tensor([5, 3], device="npu"))


@on("mlu")
def test_every_optimizer_steps_as_on_the_cpu() -> None:
    x = torch.randn(5, 4)
    choices: list[tuple[str, dict[str, Any]]] = [
        *(
            (name, {implementation: True})
            for name in ("SGD", "Adam", "AdamW", "Adagrad")
            for implementation in ("foreach", "fused")
        ),
        *((name, {"foreach": True}) for name in ("NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "RMSprop", "Rprop")),
        ("LBFGS", {}),
    ]  # foreach is named, for PyTorch chooses it by itself on an accelerator only
    for name, options in choices:
        weights = []
        for device_name in ("cpu", "mlu"):
            model, rows = make_perceptron().to(device_name), x.to(device_name)
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)

            def closure(model: Any = model, rows: Any = rows, optimizer: Any = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss: torch.Tensor = model(rows).square().sum()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)
            weights.append([p.detach().cpu() for p in model.parameters()])
        assert all(torch.equal(first, second) for first, second in zip(*weights, strict=True)), (name, options)
