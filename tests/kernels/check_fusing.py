"""Check networks of other packages on our kernels, in Triton's interpreter; the results are JSON.

    TRITON_INTERPRET=1 python tests/kernels/check_fusing.py

The kernels compute in float32 here, which only tests do: so that a pass can be compared closely.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))
from kernels.foreign_blocks import SmallResNet, TimmBottleneck, TorchvisionBottleneck
from viaduct.kernels import fuse as fusing
from viaduct.kernels.fuse import fuse, fuse_parts
from viaduct.kernels.fused import read_report, unfuse

IMAGES = torch.randn(2, 3, 32, 32)
PASSES: list[type] = []  # one for each pass of a block on our kernels


class Counted(fusing.BottleneckFunction):
    """Notes every pass that our kernels compute."""

    @staticmethod
    def forward(ctx: object, *inputs: object) -> Tensor:  # type: ignore[override]
        PASSES.append(Counted)
        made: Tensor = fusing_forward(ctx, *inputs)
        return made


fusing_forward = fusing.BottleneckFunction.forward
fusing.BottleneckFunction = Counted  # type: ignore[misc]


@contextlib.contextmanager
def expect_passes(count: int) -> Iterator[None]:
    PASSES.clear()
    yield
    assert len(PASSES) == count, f"{len(PASSES)} passes on our kernels instead of {count}"


def draw_network(kind: type[nn.Module] = TorchvisionBottleneck) -> SmallResNet:
    network = SmallResNet(kind)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
    return network


def run_step(network: nn.Module, images: Tensor = IMAGES) -> dict[str, Tensor]:
    """Take a pass forward and backward; return the loss, all gradients and all buffers."""
    network.zero_grad()
    loss = network(images).square().mean()
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    return {"loss": loss.detach(), **gradients, **{name: tensor.clone() for name, tensor in network.named_buffers()}}


def are_equal(ours: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return all(torch.equal(ours[name], others[name]) for name in others)


def assert_close(ours: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    for (name, tensor), other in zip(ours.items(), others.values(), strict=True):
        difference = float((tensor - other).double().norm() / other.double().norm().clamp_min(1e-12))
        assert difference < 1e-4, f"{name} is {difference:.1e} apart"


def check_a_step_is_that_of_the_network_as_written() -> None:
    for kind in (TorchvisionBottleneck, TimmBottleneck):
        network = draw_network(kind)
        plain = copy.deepcopy(network)
        assert fuse(network, torch.float32) == 2
        with expect_passes(2):
            ours = run_step(network)
        assert_close(ours, run_step(plain))


def check_the_report_names_what_is_fused_and_what_is_not() -> None:
    network = draw_network()
    network.layer1.append(TorchvisionBottleneck(64, 16, 64, dilation=2))
    report = fuse_parts(network, torch.float32)
    assert report.fused == ("layer1.0", "layer1.1")
    assert report.unfused == (("conv1", fusing.SEPARATE_STEM), ("layer1.2", "conv2 is dilated"))
    assert report.obstacle is None
    assert read_report(nn.Sequential(network)) == report
    assert "2 parts run on kernels of viaduct\nconv1: as written, because" in str(report)


def check_the_state_dict_holds_the_same_tensors() -> None:
    network = draw_network()
    before = {name: (id(tensor), tensor.data_ptr()) for name, tensor in network.state_dict(keep_vars=True).items()}
    fuse(network, torch.float32)
    after = {name: (id(tensor), tensor.data_ptr()) for name, tensor in network.state_dict(keep_vars=True).items()}
    assert before == after
    assert list(before) == list(after)


def check_unfused_it_is_as_before() -> None:
    network = draw_network()
    plain = copy.deepcopy(network)
    attributes = {name: set(vars(module)) for name, module in network.named_modules()}
    fuse(network, torch.float32)
    assert unfuse(network) is network
    assert {name: set(vars(module)) for name, module in network.named_modules()} == attributes
    assert not any(vars(module)["_forward_pre_hooks"] or module._forward_hooks for module in network.modules())
    with expect_passes(0):
        assert are_equal(run_step(network), run_step(plain))
    assert read_report(network) is None


def check_hooks_of_others_stay() -> None:
    network = draw_network()
    seen: list[str] = []
    network.register_forward_pre_hook(lambda *_: seen.append("before"))
    network.layer1[0].register_forward_hook(lambda *_: seen.append("block"))
    fuse(network, torch.float32)
    network(IMAGES)
    unfuse(network)
    network(IMAGES)
    assert seen == ["before", "block"] * 2


def check_fused_twice_it_is_fused_once() -> None:
    network = draw_network()
    for _ in range(2):
        assert fuse(network, torch.float32) == 2
        assert len(network._forward_pre_hooks) == len(network._forward_hooks) == 1
    unfuse(network)
    assert not network._forward_pre_hooks


def check_an_evaluation_runs_as_written() -> None:
    network = draw_network().eval()
    plain = copy.deepcopy(network)
    fuse(network, torch.float32)
    with expect_passes(0):
        assert torch.equal(network(IMAGES), plain(IMAGES))


def check_another_precision_runs_as_written() -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("viaduct").addHandler(handler)
    network = draw_network()
    plain = copy.deepcopy(network)
    fuse(network, torch.bfloat16)
    with expect_passes(0):
        assert are_equal(run_step(network), run_step(plain))
        run_step(network)
    text = "because they compute in torch.float32 here and viaduct's kernels in torch.bfloat16"
    assert [text in line for line in records] == [True], records
    fuse(network, torch.float32)
    with expect_passes(0), torch.autocast("cpu", torch.bfloat16):
        network(IMAGES)


def check_norms_that_are_frozen_later_run_as_written() -> None:
    network = draw_network()
    fuse(network, torch.float32)
    network.layer1[0].bn2.eval()
    before = network.layer1[0].bn2.running_mean.clone()
    with expect_passes(1):
        run_step(network)
    assert torch.equal(network.layer1[0].bn2.running_mean, before)


def check_weights_in_another_precision_are_copied_before_each_pass() -> None:
    """Weights in float64 stand for float32, copies in float32 for bfloat16; a part alone has no hook before it."""
    network = draw_network()
    fuse(network, torch.float32)
    x = torch.randn(2, 32, 8, 8)
    for layer in network.layer1.modules():
        if isinstance(layer, nn.Conv2d):
            layer.double()
    with expect_passes(6):
        output = network(IMAGES)
        part = network.layer1(x)
        with torch.no_grad():
            network.layer1[0].conv2.weight.mul_(-1)
        assert not torch.allclose(network.layer1(x), part)
    assert not torch.allclose(network(IMAGES), output)


def check_a_pass_that_fails_does_not_leave_weights_stale() -> None:
    network = draw_network()
    fuse(network, torch.float32)
    handle = network.fc.register_forward_pre_hook(lambda *_: 1 / 0)  # type: ignore[arg-type, return-value]
    with contextlib.suppress(ZeroDivisionError):
        network(IMAGES)
    handle.remove()
    (hook,) = network._forward_pre_hooks.values()
    assert not hook.__self__.are_fresh


def check_a_copy_has_weights_of_its_own() -> None:
    """Averaged weights are kept in such a copy."""
    network = draw_network()
    fuse(network, torch.float32)
    other = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    with expect_passes(4):
        ours, theirs = run_step(network), run_step(other)
    assert_close(theirs, run_step(unfuse(copy.deepcopy(draw_like(other)))))
    assert not torch.allclose(ours["loss"], theirs["loss"])
    assert read_report(other) == read_report(network)
    assert unfuse(other).layer1[0].__class__ is TorchvisionBottleneck


def draw_like(network: nn.Module) -> nn.Module:
    """Return a copy whose norms have not seen a batch yet."""
    fresh = copy.deepcopy(network)
    for layer in fresh.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
    return fresh


def check_it_works_in_distributed_data_parallel() -> None:
    network = draw_network()
    plain = copy.deepcopy(network)
    names = list(network.state_dict())
    fuse(network, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        wrapped = DistributedDataParallel(network)
        with expect_passes(4):
            run_step(wrapped)
            ours = run_step(wrapped)
        dist.destroy_process_group()
    run_step(plain)
    assert_close(ours, run_step(plain))
    assert list(network.state_dict()) == names
    assert read_report(wrapped).fused == ("layer1.0", "layer1.1")


def check_activation_checkpoints_work() -> None:
    network = draw_network()
    plain = copy.deepcopy(network)
    fuse(network, torch.float32)
    x = torch.randn(2, 32, 8, 8)
    gradients = []
    for made in (network, plain):
        given = x.clone().requires_grad_()
        checkpoint(made.layer1, given, use_reentrant=False).square().sum().backward()
        gradients.append(given.grad)
    assert_close({"x": gradients[0]}, {"x": gradients[1]})


def check_errors_are_torchs_own() -> None:
    network = draw_network()
    fuse(network, torch.float32)
    x = torch.randn(2, 32, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    given = x * 1.0
    made = network.layer1[0](given)
    given.add_(1)
    assert "modified by an inplace operation" in message_of(lambda: made.sum().backward())
    loss = network.layer1[0](x).sum()
    loss.backward(retain_graph=True)
    assert "viaduct.unfuse" in message_of(loss.backward)
    loss = network.layer1[0](x).sum()
    loss.backward()
    assert "second time" in message_of(loss.backward)
    single = torch.randn(1, 32, 1, 1)
    assert "Expected more than 1 value per channel" in message_of(lambda: network.layer1[0](single))


def message_of(work: Callable[[], object]) -> str:
    try:
        work()
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def check_further_arguments_reach_the_blocks_own_forward() -> None:
    network = draw_network()
    fuse(network, torch.float32)
    with expect_passes(0):
        assert "forward" in message_of(lambda: network.layer1[0](torch.randn(2, 32, 8, 8), 3))
        network.layer1[0](x=torch.randn(2, 32, 8, 8))


def check_frozen_parameters_get_no_gradients() -> None:
    network = draw_network()
    fuse(network, torch.float32)
    network.layer1[0].conv1.weight.requires_grad_(False)
    network(IMAGES).sum().backward()
    assert network.layer1[0].conv1.weight.grad is None
    assert network.layer1[0].conv2.weight.grad is not None


def check_only_blocks_that_fit_are_taken_over() -> None:
    class Doubled(TorchvisionBottleneck):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    network = draw_network(Doubled)
    report = fuse_parts(network, torch.float32)
    assert report.fused == ()
    assert [name for name, _ in report.unfused] == ["conv1", "layer1.0", "layer1.1"]
    assert not any("forward" in vars(module) for module in network.modules())
    assert not network._forward_pre_hooks


CHECKS = {name.removeprefix("check_"): work for name, work in globals().items() if name.startswith("check_")}


def find_failure(work: Callable[[], None]) -> str:
    try:
        work()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    torch.manual_seed(int.from_bytes(os.urandom(2), "big"))
    torch.set_num_threads(1)
    json.dump({name: find_failure(work) for name, work in CHECKS.items()}, sys.stdout, indent=1)
