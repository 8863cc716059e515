"""An unchanged CUDA script on the CPU."""

from __future__ import annotations

import copy
import io
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.networks import have_equal_tensors, make_perceptron, train
from rehearsal.torch_stage.staged import on
from rehearsal.torch_stage.test_casting import train_mixed


@on("cuda")
def test_a_copy_to_the_device_is_a_copy_and_devices_do_not_mix() -> None:
    host = torch.ones(3)
    card = host.cuda()
    kept = card.cpu()
    card.mul_(5)
    assert (host.tolist(), kept.tolist()) == ([1, 1, 1], [1, 1, 1])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        card + host


@on("cuda")
def test_branches_on_the_device_are_taken_as_on_a_gpu() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.ones(1, 3).to(device)
    assert device.type == "cuda"
    assert x.is_cuda
    assert x.device == torch.device("cuda:0")
    assert x.device.type == "cuda"
    assert not torch.ones(1).is_cuda
    assert x.type() == "torch.cuda.FloatTensor"
    assert isinstance(x, torch.cuda.FloatTensor)
    assert torch.cuda.get_device_capability()[0] >= 8
    assert torch.cuda.get_device_properties(0).major == 8
    assert "cuda:0" in repr(x)
    assert torch.distributed.is_nccl_available()


@on("cuda")
def test_every_way_to_name_a_cuda_device_is_accepted() -> None:
    torch.cuda.set_device(1)
    x = torch.ones(2)
    placed = [
        x.cuda(),
        x.to("cuda"),
        x.to(torch.device("cuda")),
        x.to(1),
        x.cuda(1, non_blocking=True),
        x.to("cuda:1", torch.float16),
        x.type(torch.cuda.FloatTensor),
        x.type("torch.cuda.HalfTensor"),
        torch.zeros(2, device="cuda"),
        torch.zeros(2, device=1),
        torch.tensor([1], device=torch.device("cuda")),
        torch.full_like(x.cuda(), 2),
        x.cuda().new_zeros(3),
        torch.nn.Linear(2, 2).cuda().weight,
        torch.nn.Linear(2, 2).to("cuda").weight,
        torch.nn.Linear(2, 2, device="cuda").weight,
        copy.deepcopy(torch.nn.Linear(2, 2).cuda()).weight,
        torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(x),
    ]
    with torch.device("cuda"):
        placed.append(torch.ones(1))
    torch.set_default_device("cuda")
    placed.append(torch.ones(1))
    torch.set_default_device("cpu")
    thread = threading.Thread(target=lambda: placed.append(x.to("cuda:1")))
    thread.start()
    thread.join()
    assert {str(tensor.device) for tensor in placed} == {"cuda:1"}
    assert len(placed) == 21


@on("cuda")
def test_streams_memory_seeds_and_scaling_work() -> None:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(1000, device="cuda")
    torch.cuda.current_stream().wait_stream(stream)
    x.record_stream(stream)
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0
    assert torch.cuda.memory_allocated() == 4000
    torch.cuda.empty_cache()
    torch.cuda.manual_seed_all(1)
    first = torch.randn(2, device="cuda")
    torch.cuda.manual_seed(1)
    assert torch.equal(torch.randn(2, device="cuda"), first)
    assert torch.Generator(device="cuda").device.type == "cuda"
    with torch.cuda.amp.autocast():
        assert (x.view(10, 100) @ x.view(100, 10)).dtype is torch.float16
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x.view(10, 100) @ x.view(100, 10)).dtype is torch.bfloat16
    assert torch.cuda.amp.GradScaler().scale(x.sum()).device.type == "cuda"


@on("cuda")
def test_checkpoints_are_those_of_a_gpu() -> None:
    buffer = io.BytesIO()
    torch.save(torch.nn.Linear(2, 2).cuda().state_dict(), buffer)
    assert b"cuda:0" in zipfile.ZipFile(buffer).read("archive/data.pkl")
    for where, device in (
        (None, "cuda:0"),
        ("cpu", "cpu"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda"), "cuda:0"),
        ({"cuda:0": "cuda:2"}, "cuda:2"),
        (lambda storage, location: storage.cuda(3), "cuda:3"),
        (lambda storage, location: storage, "cpu"),
    ):
        buffer.seek(0)
        assert str(torch.load(buffer, map_location=where)["weight"].device) == device


@on("cuda")
def write_original(path: Path) -> None:
    torch.save((train("cuda", "AdamW"), train_mixed("cuda")), path)


@on("npu")
def write_migrated(path: Path) -> None:
    torch.save((train("npu", "AdamW"), train_mixed("npu")), path)


def test_a_script_and_its_migrated_copy_end_with_the_same_bits(tmp_path: Path) -> None:
    write_original(path=tmp_path / "cuda.pt")
    write_migrated(path=tmp_path / "npu.pt")
    ours, theirs = (torch.load(tmp_path / name) for name in ("cuda.pt", "npu.pt"))
    assert have_equal_tensors(ours[0], theirs[0])
    assert have_equal_tensors(ours[1], theirs[1])
    assert not have_equal_tensors(ours[0], ours[1])


@on("cuda")
def test_scripted_and_traced_modules_compute_and_are_loaded_onto_the_device() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    x = torch.randn(5, 4)
    expected = make_perceptron()(x)
    for module in (torch.jit.script(make_perceptron().cuda()), torch.jit.trace(make_perceptron().cuda(), x.cuda())):
        assert torch.equal(module(x.cuda()).cpu(), expected)
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        assert torch.jit.load(file, map_location="cuda")(x.cuda()).is_cuda
    made: Any = torch.jit.script(make_range)
    assert made(x.cuda()).tolist() == [1, 2, 3]


def make_range(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(3, device=x.device) + torch.zeros_like(torch.ones([3], device=x.device)) + torch.tensor(1)


@on("cuda")
def test_export_and_flex_attention_trace_tensors_of_the_device() -> None:
    warnings.filterwarnings("ignore")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    x = torch.randn(5, 4, device="cuda")
    assert torch.export.export(make_perceptron().cuda(), (x,)).module()(x).is_cuda
    q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128, device="cuda")
    output = flex_attention(q, q, q, block_mask=mask)
    output.sum().backward()
    expected = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    assert q.grad is not None


@on("cuda")
def test_the_submodules_of_torch_cuda_are_the_devices_too() -> None:
    state = torch.cuda.random.get_rng_state()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.random.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), drawn)
    assert torch.cuda.memory.memory_allocated() > 0
    assert torch.cuda.streams.Stream is torch.cuda.Stream
