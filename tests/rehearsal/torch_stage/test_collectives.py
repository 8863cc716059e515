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
from rehearsal.torch_stage.networks import batches, network, same

BACKENDS = {"npu": "hccl", "mlu": "cncl", "cuda": "nccl", "cpu": "gloo"}


def ranks(stage: str, work: str, folder: Path, backend: str = "") -> list[dict[str, Any]]:
    """Return the results of `work` on two ranks."""
    backend = backend or BACKENDS[stage]
    with (
        start_command(rank, stage, work, folder, 0, backend) as first,
        start_command(rank, stage, work, folder, 1, backend) as second,
    ):
        outputs = [command.communicate() for command in (first, second)]
        assert first.returncode == second.returncode == 0, outputs
    return [torch.load(folder / f"{stage}{number}.pt", weights_only=False) for number in range(2)]


def rank(stage: str, work: str, folder: Path, number: int, backend: str) -> None:
    from viaduct.rehearsal import torch_stage

    os.environ.update(RANK=str(number), WORLD_SIZE="2", LOCAL_RANK=str(number))
    if stage == "cuda":
        torch_stage.install_cuda_as_cpu()
    elif stage != "cpu":
        torch_stage.install(stage)
    if stage != "cpu":
        getattr(torch, stage).set_device(number)
    dist.init_process_group(backend, init_method=f"file://{folder}/{stage}", rank=number, world_size=2)
    answer = globals()[work](f"{stage}:{number}" if stage != "cpu" else "cpu", number)
    torch.save(answer, folder / f"{stage}{number}.pt")
    dist.destroy_process_group()


def training(place: str, number: int) -> dict[str, torch.Tensor]:
    model = network().to(place)
    for buckets in (False, True):
        ids = None if place == "cpu" else [number]
        wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=buckets)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05, momentum=0.9)
        torch.manual_seed(number)
        for images, labels in batches(2, seed=number):
            optimizer.zero_grad()
            functional.cross_entropy(wrapped(images.to(place)), labels.to(place)).backward()
            optimizer.step()
    return {name: value.cpu() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("stage", ["npu", pytest.param("cuda", marks=pytest.mark.slow)])
def test_ddp_trains_to_the_weights_of_the_cpu_bit_for_bit(stage: str, tmp_path: Path) -> None:
    expected = ranks("cpu", "training", tmp_path)
    weights = [name for name in expected[0] if not name.endswith(("running_mean", "running_var"))]
    assert all(torch.equal(expected[0][name], expected[1][name]) for name in weights)
    for ours, theirs in zip(ranks(stage, "training", tmp_path), expected, strict=True):
        assert same(ours, theirs)


def everything(place: str, number: int) -> dict[str, Any]:
    """Every collective once, by name."""
    own = torch.full((2,), float(number), device=place)
    answer: dict[str, Any] = {"backend": dist.get_backend(), "size": dist.get_world_size()}
    for op in ("SUM", "MAX", "AVG"):
        value = own + 1
        dist.all_reduce(value, op=getattr(dist.ReduceOp, op))
        answer[op] = value.tolist()
    several = [own + 1, own + 3]
    dist.all_reduce_coalesced(several, op=dist.ReduceOp.AVG)
    answer["AVG of several"] = [value.tolist() for value in several]
    listed = [torch.zeros(2, device=place) for _ in range(2)]
    dist.all_gather(listed, own)
    answer["all_gather"] = [part.tolist() for part in listed]
    tensor = torch.zeros(4, device=place)
    dist.all_gather_into_tensor(tensor, own)
    answer["all_gather_into_tensor"] = tensor.tolist()
    with pytest.raises(RuntimeError, match="view size is not compatible"):  # its parts would be copies
        dist.all_gather_into_tensor(torch.zeros(2, 4, device=place).t(), torch.zeros(4, device=place))
    part = torch.zeros(2, device=place)
    dist.reduce_scatter_tensor(part, torch.arange(4.0, device=place))
    answer["reduce_scatter_tensor"] = part.tolist()
    dist.reduce_scatter(part, [own, own + 5])
    answer["reduce_scatter"] = part.tolist()
    dist.all_to_all_single(part, torch.arange(2.0, device=place) + 10 * number)
    answer["all_to_all_single"] = part.tolist()
    dist.all_to_all(listed, [own + 10, own + 20])
    answer["all_to_all"] = [value.tolist() for value in listed]
    dist.broadcast(part, 1)
    answer["broadcast"] = part.tolist()
    dist.scatter(part, [own, own + 3] if number == 0 else None, 0)
    answer["scatter"] = part.tolist()
    gathered = [torch.zeros(2, device=place) for _ in range(2)] if number == 0 else None
    dist.gather(own, gathered, 0)
    answer["gather"] = [value.tolist() for value in gathered or []]
    if number == 0:
        dist.send(own + 9, 1)
    else:
        dist.recv(part, 0)
        answer["recv"] = part.tolist()
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": number})
    answer["objects"] = objects
    later = dist.all_reduce(own, async_op=True)
    later.wait()
    answer["later"] = own.tolist()
    group = dist.new_group([0, 1])
    dist.barrier(group)
    dist.barrier()
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(1))
    norm = torch.nn.SyncBatchNorm(3).to(place)
    torch.manual_seed(number)
    image = torch.randn(2, 3, 4, 4)
    result = norm(image.to(place))
    result.square().sum().backward()
    answer["norm"] = (image, result.detach().cpu(), norm.running_var.cpu())
    return answer


@pytest.mark.filterwarnings("ignore")
def test_every_collective_does_what_its_name_says(tmp_path: Path) -> None:
    for stage, backend in (("mlu", "cncl"), ("cuda", "nccl")):
        zero, rank1 = ranks(stage, "everything", tmp_path)
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


def reductions(place: str, number: int) -> dict[str, Any]:
    """Sums of the card's and the host's tensors in the first group and in one that inherits its backend."""
    answer: dict[str, Any] = {"backend": dist.get_backend()}
    for group_name, group in (("first", None), ("second", dist.new_group([0, 1]))):
        for device in (place, "cpu"):
            value = torch.full((2,), number + 1.0, device=device)
            try:
                dist.all_reduce(value, group=group)
            except RuntimeError as error:
                answer[f"{group_name} {device.split(':')[0]}"] = str(error).splitlines()[0]
            else:
                answer[f"{group_name} {device.split(':')[0]}"] = value.tolist()
    return answer


@pytest.mark.parametrize("backend", ["cpu:hccl,npu:hccl", "hccl"])
def test_the_cards_library_refuses_the_hosts_tensors(backend: str, tmp_path: Path) -> None:
    for answer in ranks("npu", "reductions", tmp_path, backend):
        assert answer["first npu"] == answer["second npu"] == [3, 3]
        assert answer["first cpu"] == answer["second cpu"] == "No backend type associated with device type cpu"


def test_a_backend_for_cuda_does_not_serve_the_npu(tmp_path: Path) -> None:
    for answer in ranks("npu", "reductions", tmp_path, "cpu:gloo,cuda:hccl"):
        assert answer["first npu"] == answer["second npu"] == "No backend type associated with device type npu"
        assert answer["first cpu"] == answer["second cpu"] == [3, 3]


@pytest.mark.parametrize(
    ("stage", "backend"), [("npu", "cpu:gloo,npu:hccl"), ("cuda", "cpu:gloo,cuda:nccl"), ("cuda", "cuda:nccl,cpu:gloo")]
)
def test_a_backend_for_both_serves_both_in_groups_that_inherit_it_too(stage: str, backend: str, tmp_path: Path) -> None:
    for answer in ranks(stage, "reductions", tmp_path, backend):
        assert answer.pop("backend") == backend
        assert list(answer.values()) == [[3, 3]] * 4
