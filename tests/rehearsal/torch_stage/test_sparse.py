"""Sparse tensors on the stand-in, and the layouts that it refuses."""

from __future__ import annotations

import io
import warnings

import pytest
import torch

from rehearsal.torch_stage.staged import on


def accept_sparse() -> None:
    """Silence PyTorch's warnings that sparse tensors are not checked and that CSR is in beta state."""
    torch.sparse.check_sparse_tensor_invariants.disable()
    warnings.filterwarnings("ignore", "Sparse .* tensor support is in beta state")


@on("npu")
def test_sparse_and_dense_tensors_of_two_devices_do_not_mix() -> None:
    card = torch.eye(3).to_sparse().npu()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.sparse.mm(card, torch.ones(3, 2))


@on("npu")
def test_nested_and_quantized_tensors_are_refused_in_a_sentence() -> None:
    x = torch.ones(3, device="npu")
    with pytest.raises(NotImplementedError, match="A rehearsal has no nested tensors on the npu: pad the batch"):
        torch._nested_tensor_from_tensor_list([x, x])
    with pytest.raises(NotImplementedError, match="A rehearsal has no quantized tensors on the npu"):
        torch.quantize_per_tensor(x, 1.0, 0, torch.qint8)


@on("cuda")
def test_sparse_arithmetic_is_that_of_the_cpu() -> None:
    accept_sparse()
    torch.manual_seed(0)
    dense = torch.randn(4, 5).relu()
    other = torch.randn(5, 3)
    for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        results = []
        for device_name in ("cpu", "cuda"):
            x = dense.to(device_name).to_sparse(layout=layout)
            y = other.clone().to(device_name).requires_grad_()
            product = x @ y
            product.square().sum().backward()
            assert x.device.type == device_name
            results.append([product.detach().cpu(), y.grad.cpu(), (x * 2).to_dense().cpu(), x.cpu().to_dense()])
        assert all(torch.equal(first, second) for first, second in zip(*results, strict=True)), layout


@on("npu")
def test_sparse_tensors_of_lists_are_made_on_the_current_card() -> None:
    accept_sparse()
    torch.npu.set_device(1)
    made = [
        torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device="npu"),
        torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), device="npu"),
    ]
    assert [str(tensor.device) for tensor in made] == ["npu:1", "npu:1"]


@on("mlu")
def test_sparse_tensors_are_made_changed_in_place_and_saved() -> None:
    accept_sparse()
    indices, values = torch.tensor([[0, 1, 1], [2, 0, 0]]), torch.tensor([3.0, 4.0, 5.0])
    x = torch.sparse_coo_tensor(indices, values, (2, 3), device="mlu")
    assert not x.is_coalesced()
    assert x.coalesce().values().tolist() == [3, 9]
    total = torch.zeros(2, 3, device="mlu").add_(x, alpha=2)
    assert total.tolist() == [[0, 0, 6], [18, 0, 0]]
    x.mul_(2)
    assert x.to_dense().tolist() == [[0, 0, 6], [18, 0, 0]]
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.equal(torch.load(file).to_dense(), total)
    x.zero_()
    assert x._nnz() == 0


@on("npu")
def test_an_embedding_with_sparse_gradients_trains_as_on_the_cpu() -> None:
    accept_sparse()
    for optimizer in (torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad):
        weights = []
        for device_name in ("cpu", "npu"):
            torch.manual_seed(0)
            table = torch.nn.Embedding(10, 4, sparse=True).to(device_name)
            update = optimizer(table.parameters(), lr=0.1)
            for rows in ([1, 2, 2], [2, 3]):
                update.zero_grad()
                table(torch.tensor(rows, device=device_name)).square().sum().backward()
                assert table.weight.grad.is_sparse
                update.step()
            weights.append(table.weight.detach().cpu())
        assert torch.equal(*weights), optimizer
