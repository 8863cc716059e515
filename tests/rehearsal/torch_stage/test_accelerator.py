"""Backward passes on several cards."""

from __future__ import annotations

import torch

from rehearsal.torch_stage.staged import on


@on("npu")
def test_backward_works_on_any_card_and_in_any_thread() -> None:
    import threading

    results: list[float] = []

    def work() -> None:
        x = torch.full((2,), 3.0, device="npu:5", requires_grad=True)
        (x * x).sum().backward()
        results.append(float(x.grad.sum()))
        (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        results.append(float(torch.autograd.grad(grad.sum(), x)[0].sum()))

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [12.0, 36.0] * 2
