"""Operators that only accelerators have, computed by their formulas: they agree with those that the CPU has."""

from __future__ import annotations

import pytest
import torch

from viaduct.rehearsal.torch_stage.absent import (
    batch_norm_backward_elemt,
    batch_norm_backward_reduce,
    batch_norm_elemt,
    batch_norm_gather_stats_with_counts,
    batch_norm_stats,
    gru_cell,
    gru_cell_backward,
    lstm_cell,
    lstm_cell_backward,
    make_wide_product,
)

EPS = 1e-5


def test_a_batch_on_two_ranks_is_normalised_as_the_whole_batch() -> None:
    torch.manual_seed(0)
    x, dy = torch.randn(6, 3, 4, 4), torch.randn(6, 3, 4, 4)
    norm = torch.nn.BatchNorm2d(3, eps=EPS)
    torch.nn.init.uniform_(norm.weight)
    tensor = x.clone().requires_grad_()
    expected = norm(tensor)
    expected.backward(dy)
    parts, gradients = (x[:2], x[2:]), (dy[:2], dy[2:])
    counts = torch.tensor([float(part.numel() // 3) for part in parts])
    means, invstds = (torch.stack(values) for values in zip(*(batch_norm_stats(p, EPS) for p in parts), strict=True))
    running = torch.zeros(3), torch.ones(3)
    mean, invstd = batch_norm_gather_stats_with_counts(x, means, invstds, *running, 0.1, EPS, counts)
    weight, bias = norm.weight.detach(), norm.bias.detach()
    output = torch.cat([batch_norm_elemt(part, weight, bias, mean, invstd, EPS) for part in parts])
    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(running, (norm.running_mean, norm.running_var))
    sums = [
        batch_norm_backward_reduce(gradient, part, mean, invstd, weight, True, True, True)
        for gradient, part in zip(gradients, parts, strict=True)
    ]
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = (sum(values) for values in zip(*sums, strict=True))
    torch.testing.assert_close((grad_weight, grad_bias), (norm.weight.grad, norm.bias.grad))
    inputs = [
        batch_norm_backward_elemt(gradient, part, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)
        for gradient, part in zip(gradients, parts, strict=True)
    ]
    torch.testing.assert_close(torch.cat(inputs), tensor.grad)


def test_half_precision_is_normalised_in_float32_and_comes_back_in_half() -> None:
    x = torch.randn(4, 2, 3).half()
    mean, invstd = batch_norm_stats(x, EPS)
    assert mean.dtype is invstd.dtype is torch.float32
    assert batch_norm_elemt(x, None, None, mean, invstd, EPS).dtype is torch.float16


def test_an_lstm_cell_and_its_gradients_equal_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(3, 5)
    x, hx, cx = torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5, requires_grad=True)
    from_inputs = (x @ cell.weight_ih.t()).detach().requires_grad_()
    expected = cell(x, (hx, cx))
    hy, cy, workspace = lstm_cell(from_inputs, hx @ cell.weight_hh.t(), cx, cell.bias_ih, cell.bias_hh)
    torch.testing.assert_close((hy, cy), expected)
    grads = torch.randn(2, 5), torch.randn(2, 5)
    true = torch.autograd.grad((hy, cy), (from_inputs, cx, cell.bias_ih), grads)
    with torch.no_grad():
        torch.testing.assert_close(lstm_cell_backward(*grads, cx, cy, workspace, True), true)
    assert lstm_cell_backward(None, None, cx, cy, workspace, True) == (None, None, None)


def test_a_gru_cell_and_its_gradients_equal_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(3, 5)
    x, hx = torch.randn(2, 3), torch.randn(2, 5, requires_grad=True)
    from_inputs = (x @ cell.weight_ih.t()).detach().requires_grad_()
    from_hidden = (hx @ cell.weight_hh.t()).detach().requires_grad_()
    hy, workspace = gru_cell(from_inputs, from_hidden, hx, cell.bias_ih, cell.bias_hh)
    torch.testing.assert_close(hy, cell(x, hx))
    grad = torch.randn(2, 5)
    true = torch.autograd.grad(hy, (from_inputs, from_hidden, hx, cell.bias_ih, cell.bias_hh), grad)
    with torch.no_grad():
        torch.testing.assert_close(gru_cell_backward(grad, workspace, True), true)


@pytest.mark.parametrize("out", [None, torch.empty(0)])
def test_a_product_computes_in_the_wider_dtype_that_it_returns(out: torch.Tensor | None) -> None:
    halves = torch.full((1, 4), 256.0).half(), torch.full((4, 1), 256.0).half()  # their product overflows in half
    result = make_wide_product(torch.mm)(*halves, torch.float32, out=out)
    assert result.dtype is torch.float32
    assert result.tolist() == [[4 * 256.0**2]]
    assert out is None or result is out
