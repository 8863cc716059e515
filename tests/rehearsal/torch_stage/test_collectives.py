"""Process groups on hccl, cncl and (for a script that was not migrated) nccl: two ranks on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional

from forked_viaduct import start_command
from rehearsal.torch_stage.networks import have_equal_tensors, make_batches, make_network

BACKENDS = {"npu": "hccl", "mlu": "cncl", "cuda": "nccl", "cpu": "gloo"}


def run_on_two_ranks(stage: str, function: str, folder: Path, backend: str = "") -> list[dict[str, Any]]:
    """Return the results of `function` on two ranks."""
    backend = backend or BACKENDS[stage]
    with (
        start_command(run_rank, stage, function, folder, 0, backend) as first,
        start_command(run_rank, stage, function, folder, 1, backend) as second,
    ):
        outputs = [command.communicate() for command in (first, second)]
        assert first.returncode == second.returncode == 0, outputs
    return [torch.load(folder / f"{stage}{rank}.pt", weights_only=False) for rank in range(2)]


def run_rank(stage: str, function: str, folder: Path, rank: int, backend: str) -> None:
    from viaduct.rehearsal import torch_stage

    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    if stage == "cuda":
        torch_stage.install_cuda_as_cpu()
    elif stage != "cpu":
        torch_stage.install(stage)
    if stage != "cpu":
        getattr(torch, stage).set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{folder}/{stage}", rank=rank, world_size=2)
    results = globals()[function](f"{stage}:{rank}" if stage != "cpu" else "cpu", rank)
    torch.save(results, folder / f"{stage}{rank}.pt")
    dist.destroy_process_group()


def train_with_ddp(device: str, rank: int) -> dict[str, torch.Tensor]:
    model = make_network().to(device)
    for buckets in (False, True):
        ids = None if device == "cpu" else [rank]
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=buckets)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05, momentum=0.9)
        torch.manual_seed(rank)
        for images, labels in make_batches(2, seed=rank):
            optimizer.zero_grad()
            functional.cross_entropy(wrapped(images.to(device)), labels.to(device)).backward()
            optimizer.step()
    return {name: value.cpu() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("stage", ["npu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_ddp_trains_to_the_weights_of_the_cpu_bit_for_bit(stage: str, tmp_path: Path) -> None:
    expected = run_on_two_ranks("cpu", "train_with_ddp", tmp_path)
    weights = [name for name in expected[0] if not name.endswith(("running_mean", "running_var"))]
    assert all(torch.equal(expected[0][name], expected[1][name]) for name in weights)
    for ours, theirs in zip(run_on_two_ranks(stage, "train_with_ddp", tmp_path), expected, strict=True):
        assert have_equal_tensors(ours, theirs)


class PartlyUsed(torch.nn.Module):
    """A network that does not use its second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)  # type: ignore[no-any-return]


def find_unused_weights(device: str, rank: int) -> list[Any]:
    gradients = []
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        torch.manual_seed(0)
        ids = None if device == "cpu" else [rank]
        model = torch.nn.parallel.DistributedDataParallel(PartlyUsed().to(device), device_ids=ids, **options)
        for _ in range(2):
            model(torch.full((2, 3), rank + 1.0, device=device)).square().sum().backward()
        gradients += [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    return gradients


@pytest.mark.filterwarnings("ignore")
def test_ddp_finds_unused_weights(tmp_path: Path) -> None:
    expected = run_on_two_ranks("cpu", "find_unused_weights", tmp_path)
    assert [gradient is None for gradient in expected[0]] == [False, False, True, True] * 2
    for stage in ("npu", "cuda"):
        assert run_on_two_ranks(stage, "find_unused_weights", tmp_path) == expected


def run_every_collective(device: str, rank: int) -> dict[str, Any]:
    """Call every collective once; return the results by name."""
    own = torch.full((2,), float(rank), device=device)
    results: dict[str, Any] = {"backend": dist.get_backend(), "size": dist.get_world_size()}
    for op in ("SUM", "MAX", "AVG"):
        value = own + 1
        dist.all_reduce(value, op=getattr(dist.ReduceOp, op))
        results[op] = value.tolist()
    several = [own + 1, own + 3]
    dist.all_reduce_coalesced(several, op=dist.ReduceOp.AVG)
    results["AVG of several"] = [value.tolist() for value in several]
    listed = [torch.zeros(2, device=device) for _ in range(2)]
    dist.all_gather(listed, own)
    results["all_gather"] = [part.tolist() for part in listed]
    tensor = torch.zeros(4, device=device)
    dist.all_gather_into_tensor(tensor, own)
    results["all_gather_into_tensor"] = tensor.tolist()
    with pytest.raises(RuntimeError, match="view size is not compatible"):  # its parts would be copies
        dist.all_gather_into_tensor(torch.zeros(2, 4, device=device).t(), torch.zeros(4, device=device))
    part = torch.zeros(2, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(4.0, device=device))
    results["reduce_scatter_tensor"] = part.tolist()
    dist.reduce_scatter(part, [own, own + 5])
    results["reduce_scatter"] = part.tolist()
    dist.all_to_all_single(part, torch.arange(2.0, device=device) + 10 * rank)
    results["all_to_all_single"] = part.tolist()
    dist.all_to_all(listed, [own + 10, own + 20])
    results["all_to_all"] = [value.tolist() for value in listed]
    dist.broadcast(part, 1)
    results["broadcast"] = part.tolist()
    dist.scatter(part, [own, own + 3] if rank == 0 else None, 0)
    results["scatter"] = part.tolist()
    gathered = [torch.zeros(2, device=device) for _ in range(2)] if rank == 0 else None
    dist.gather(own, gathered, 0)
    results["gather"] = [value.tolist() for value in gathered or []]
    if rank == 0:
        dist.send(own + 9, 1)
    else:
        dist.recv(part, 0)
        results["recv"] = part.tolist()
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    results["objects"] = objects
    later = dist.all_reduce(own, async_op=True)
    later.wait()
    results["later"] = own.tolist()
    group = dist.new_group([0, 1])
    dist.barrier(group)
    dist.barrier()
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1))
    norm = torch.nn.SyncBatchNorm(3).to(device)
    torch.manual_seed(rank)
    image = torch.randn(2, 3, 4, 4)
    result = norm(image.to(device))
    result.square().sum().backward()
    results["norm"] = (image, result.detach().cpu(), norm.running_var.cpu())
    return results


@pytest.mark.filterwarnings("ignore")
def test_every_collective_does_what_its_name_says(tmp_path: Path) -> None:
    for stage, backend in (("mlu", "cncl"), ("cuda", "nccl")):
        zero, rank1 = run_on_two_ranks(stage, "run_every_collective", tmp_path)
        assert zero["backend"] == backend
        assert zero["SUM"] == [3, 3]
        assert zero["MAX"] == [2, 2]
        assert zero["AVG"] == [1.5, 1.5]
        assert zero["AVG of several"] == rank1["AVG of several"] == [[1.5, 1.5], [3.5, 3.5]]
        assert rank1["all_gather"] == [[0, 0], [1, 1]]
        assert rank1["all_gather_into_tensor"] == [0, 0, 1, 1]
        assert (zero["reduce_scatter_tensor"], rank1["reduce_scatter_tensor"]) == ([0, 2], [4, 6])
        assert (zero["reduce_scatter"], rank1["reduce_scatter"]) == ([1, 1], [11, 11])
        assert (zero["all_to_all_single"], rank1["all_to_all_single"]) == ([0, 10], [1, 11])
        assert (zero["all_to_all"], rank1["all_to_all"]) == ([[10, 10], [11, 11]], [[20, 20], [21, 21]])
        assert zero["broadcast"] == rank1["broadcast"] == [1, 11]
        assert (zero["scatter"], rank1["scatter"]) == ([0, 0], [3, 3])
        assert zero["gather"] == [[0, 0], [1, 1]]
        assert rank1["recv"] == [9, 9]
        assert zero["objects"] == [{"rank": 0}, {"rank": 1}]
        assert zero["later"] == [1, 1]
        check_norm(zero["norm"], rank1["norm"])


def check_norm(zero: tuple[torch.Tensor, ...], one: tuple[torch.Tensor, ...]) -> None:
    """SyncBatchNorm over two ranks is BatchNorm over both batches."""
    plain = torch.nn.BatchNorm2d(3)
    both = plain(torch.cat([zero[0], one[0]]))
    torch.testing.assert_close(torch.cat([zero[1], one[1]]), both.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(zero[2], plain.running_var)


def reduce_in_two_groups(device: str, rank: int) -> dict[str, Any]:
    """Return sums of the device's and the host's tensors in the first group and in one that inherits its backend."""
    results: dict[str, Any] = {"backend": dist.get_backend()}
    for group_name, group in (("first", None), ("second", dist.new_group([0, 1]))):
        for tensor_device in (device, "cpu"):
            value = torch.full((2,), rank + 1.0, device=tensor_device)
            try:
                dist.all_reduce(value, group=group)
            except RuntimeError as error:
                results[f"{group_name} {tensor_device.split(':')[0]}"] = str(error).splitlines()[0]
            else:
                results[f"{group_name} {tensor_device.split(':')[0]}"] = value.tolist()
    return results


@pytest.mark.parametrize("backend", ["cpu:hccl,npu:hccl", "hccl"])
def test_the_cards_library_refuses_the_hosts_tensors(backend: str, tmp_path: Path) -> None:
    for results in run_on_two_ranks("npu", "reduce_in_two_groups", tmp_path, backend):
        assert results["first npu"] == results["second npu"] == [3, 3]
        assert results["first cpu"] == results["second cpu"] == "No backend type associated with device type cpu"


def test_a_backend_for_cuda_does_not_serve_the_npu(tmp_path: Path) -> None:
    for results in run_on_two_ranks("npu", "reduce_in_two_groups", tmp_path, "cpu:gloo,cuda:hccl"):
        assert results["first npu"] == results["second npu"] == "No backend type associated with device type npu"
        assert results["first cpu"] == results["second cpu"] == [3, 3]


@pytest.mark.parametrize(
    ("stage", "backend"), [("npu", "cpu:gloo,npu:hccl"), ("cuda", "cpu:gloo,cuda:nccl"), ("cuda", "cuda:nccl,cpu:gloo")]
)
def test_a_backend_for_both_serves_both_in_groups_that_inherit_it_too(stage: str, backend: str, tmp_path: Path) -> None:
    for results in run_on_two_ranks(stage, "reduce_in_two_groups", tmp_path, backend):
        assert results.pop("backend") == backend
        assert list(results.values()) == [[3, 3]] * 4
