"""A dump holds what was computed, and changes nothing of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comparison.networks import Awkward, Entangled, dumped, found, train, values
from viaduct.comparison import Dump
from viaduct.comparison.dump import describe_tf32
from viaduct.comparison.readers.viaduct import read
from viaduct.comparison.tensors import Side
from viaduct.comparison.writer import Writer
from viaduct.devices import cuda
from viaduct.errors import BadRun, BadValue, DiskFull, ViaductError


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Side:
    return dumped(tmp_path_factory.mktemp("dump"), steps="0,2")


@pytest.mark.parametrize("options", [{}, {"level": "op"}, {"statistics_only": True}, {"mode": "input", "only": "b*"}])
def test_losses_are_the_same_bits_with_a_dump(tmp_path: Path, options: dict[str, Any]) -> None:
    plain = train(None)
    assert train(tmp_path / "dump", steps="0,2", **options) == plain


def test_hooks_are_gone_outside_dumped_steps(tmp_path: Path) -> None:
    model = Awkward()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hooks = []
    with Dump(model, tmp_path, steps="1") as dump:
        for _ in range(3):
            hooks.append((dump.is_recording, any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())))
            model(torch.randn(2, 3, 8, 8)).sum().backward()
            optimizer.step()
    assert hooks == [(False, False), (True, True), (False, False)]
    assert dump.written == [1]


def test_values_are_those_of_the_operators(side: Side) -> None:
    weight, bias = values(side, "conv", "parameter", 0), values(side, "conv", "parameter", 1)
    images = torch.from_numpy(values(side, "network", "input"))
    made = F.conv2d(images, torch.from_numpy(weight), torch.from_numpy(bias))
    assert np.array_equal(values(side, "conv", "output"), made.numpy())
    assert np.array_equal(values(side, "act", "input"), made.numpy())  # before the module wrote over it
    assert np.array_equal(values(side, "act", "output"), made.relu().numpy())
    assert np.array_equal(values(side, "block", "input"), made.relu().numpy())


def test_a_gradient_is_what_one_module_sends_back_not_the_sum_of_all(side: Side) -> None:
    """The block's input goes into its convolution and around it: each way has its own gradient."""
    through = values(side, "block.conv", "grad_input")
    around = values(side, "block", "grad_output")
    assert np.allclose(values(side, "block", "grad_input"), through + around, atol=1e-7)
    assert np.array_equal(values(side, "act", "grad_output"), values(side, "block", "grad_input"))
    passed = values(side, "act", "output") > 0
    assert np.array_equal(values(side, "act", "grad_input"), values(side, "act", "grad_output") * passed)


def test_gradients_are_clipped_ones_and_the_update_is_what_sgd_made_of_them(side: Side) -> None:
    gradients = [tensor for tensor in side.tensors if tensor.role == "gradient" and tensor.step == 0]
    assert sum(t.statistics["norm"] ** 2 for t in gradients if t.statistics) ** 0.5 == pytest.approx(0.5, rel=1e-3)
    weight, gradient = values(side, "head", "parameter"), values(side, "head", "gradient")
    update = torch.from_numpy(weight) - 0.1 * torch.from_numpy(gradient) - torch.from_numpy(weight)
    assert np.allclose(values(side, "head", "update"), update.numpy(), atol=1e-8)
    assert found(side, "head", "update").parameter == "weight"
    assert found(side, "block.norm", "parameter", 2).parameter == "running_mean"


def test_edges_lead_through_functions_that_no_module_sees(side: Side) -> None:
    assert set(side.edges["block"]) == {"act", "block.norm"}
    assert side.edges["drop"] == ("block",)
    assert side.edges["head"] == ("shared",)
    assert set(side.edges["shared"]) == {"drop"}
    assert side.edges["loss"] == ("head",)
    assert side.edges["conv"] == ()


def test_containers_come_after_their_parts_forward_and_backward(side: Side) -> None:
    for role in ("output", "grad_input"):
        assert found(side, "block", role).order > found(side, "block.conv", role).order
        assert found(side, "block", role).order > found(side, "block.norm", role).order
    assert found(side, "head", "grad_input").order < found(side, "block.conv", "grad_input").order
    assert found(side, "conv", "parameter").order < found(side, "conv", "output").order


def test_each_call_of_a_shared_module_is_kept(side: Side) -> None:
    first, second = (values(side, "shared", "input", call=call) for call in (0, 1))
    assert np.allclose(np.tanh(values(side, "shared", "output", call=0)), second)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("capability", "switch", "said"),
    [
        ((9, 0), lambda: None, "convolutions"),
        ((9, 0), lambda: torch.set_float32_matmul_precision("high"), "convolutions and products"),
        ((9, 0), lambda: cuda.allow_tf32(False), "no"),
        ((9, 0), lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"), "no"),
        ((7, 5), lambda: None, "no"),
    ],
)
def test_the_settings_say_what_is_rounded_to_tf32(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], switch: Callable[[], None], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    try:
        switch()
        assert describe_tf32(torch.device("cuda")) == said
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True


def test_what_is_the_same_tensor_is_stored_once(side: Side) -> None:
    assert found(side, "block", "input").path == found(side, "act", "output").path
    assert found(side, "network", "output").path == found(side, "head", "output").path
    assert found(side, "act", "input").path != found(side, "act", "output").path


def test_half_precision_is_kept_as_it_was(tmp_path: Path) -> None:
    model = nn.Linear(4, 4).bfloat16()
    inputs = torch.randn(2, 4).bfloat16()
    with Dump(model, tmp_path / "bf16"), torch.no_grad():
        made = model(inputs)
    half = read(tmp_path / "bf16")
    assert found(half, "network", "output").dtype == "bfloat16"
    bits = values(half, "network", "output")
    assert bits.dtype == np.uint16
    assert np.array_equal(bits, made.view(torch.int16).numpy().view(np.uint16))
    statistics = found(half, "network", "output").statistics
    assert statistics is not None
    assert statistics["max"] == made.max().item()


def test_statistics_alone_agree_with_those_of_tensors(tmp_path: Path) -> None:
    whole, alone = dumped(tmp_path / "a"), dumped(tmp_path / "b", statistics_only=True)
    assert not list((tmp_path / "b").rglob("*.npy"))
    assert len(whole.tensors) == len(alone.tensors)
    for one, other in zip(whole.tensors, alone.tensors, strict=True):
        assert other.path is None
        assert not other.fault
        assert one.statistics is not None
        assert other.statistics == pytest.approx(dict(one.statistics), rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("statistics_only", [False, True])
def test_nan_and_inf_are_counted_and_survive_the_index(tmp_path: Path, statistics_only: bool) -> None:
    model = nn.Identity()
    with Dump(model, tmp_path, statistics_only=statistics_only):
        model(torch.tensor([1.0, float("nan"), float("inf"), -3.0]))
        model(torch.tensor([float("nan")]))
    side = read(tmp_path)
    some = found(side, "network", "output").statistics
    assert some is not None
    assert (some["min"], some["max"], some["nan"], some["inf"]) == (-3, 1, 1, 1)
    none = found(side, "network", "output", call=1).statistics
    assert none is not None
    assert np.isnan(none["min"])


@pytest.mark.parametrize(("mode", "roles"), [("input", {"input", "grad_output"}), ("output", {"output", "grad_input"})])
def test_the_mode_chooses_and_weights_are_always_there(tmp_path: Path, mode: str, roles: set[str]) -> None:
    side = dumped(tmp_path, mode=mode)
    recorded = {t.role for t in side.tensors if t.op not in ("labels", "loss")}
    assert recorded == roles | {"parameter", "gradient", "update"}


def test_a_pattern_limits_tensors_but_not_edges(tmp_path: Path) -> None:
    side = dumped(tmp_path, only="block.*")
    assert {tensor.op for tensor in side.tensors} == {"block.conv", "block.norm"}
    assert side.edges["head"] == ("shared",)


def test_operators_are_named_by_module_kind_and_call(tmp_path: Path) -> None:
    side = dumped(tmp_path, level="op")
    ops = {tensor.op for tensor in side.tensors}
    assert {"conv.convolution.0", "block.norm.batch_norm.0", "block.relu.0", "block.add.0"} <= ops
    assert {"block.conv.convolution_backward.0", "shared.addmm.1"} <= ops
    assert side.edges["block.add.0"] == ("block.relu.0", "act.relu.0")
    assert side.edges["block.norm.batch_norm.0"] == ("block.conv.convolution.0",)
    assert np.array_equal(values(side, "conv.convolution.0", "output"), values(side, "act.relu.0", "input"))
    weight = values(side, "block.conv.convolution_backward.0", "output", 1)
    assert weight.shape == (4, 4, 3, 3)


def test_an_operator_that_works_in_place_has_an_output_of_its_own(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with Dump(network, tmp_path / "dump", steps="0", level="op") as dump:
        network(torch.randn(5, 3)).sum().backward()
        dump.step()
    side = read(tmp_path / "dump")
    before, after = (values(side, "1.relu.0", role) for role in ("input", "output"))
    assert (before < 0).any()
    assert np.array_equal(after, np.maximum(before, 0))


def test_a_loop_without_optimizer_says_when_a_step_is_over(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with Dump(model, tmp_path, steps="1,2") as dump, torch.no_grad():
        for number in range(4):
            model(torch.full((1, 2), float(number)))
            dump.step()
    side = read(tmp_path)
    assert dump.written == [1, 2]
    assert values(side, "network", "input", step=2).tolist() == [[2.0, 2.0]]


def test_saying_that_a_step_is_over_after_the_optimizer_counts_once(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Dump(model, tmp_path, steps="1") as dump:
        for number in range(3):
            model(torch.full((1, 2), float(number))).sum().backward()
            if number != 1:  # as after an overflow: the step is skipped
                optimizer.step()
            dump.step()
    side = read(tmp_path)
    assert values(side, "network", "input", step=1).tolist() == [[1.0, 1.0]]
    assert not [tensor for tensor in side.tensors if tensor.role == "update"]


def test_evaluations_between_steps_are_left_out(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Dump(model, tmp_path, steps="1"):
        for number in range(2):
            model(torch.full((1, 2), float(number))).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(torch.full((1, 2), 99.0))
    assert values(read(tmp_path), "network", "input", step=1).tolist() == [[1.0, 1.0]]


def test_a_wrapped_network_has_the_names_of_the_plain_one(tmp_path: Path) -> None:
    model = Awkward()
    with Dump(nn.DataParallel(model), tmp_path):
        model(torch.randn(2, 3, 8, 8))
    assert "block.conv" in {tensor.op for tensor in read(tmp_path).tensors}


def test_checkpointed_parts_are_recorded_once(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    class Thrifty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return made

    model = Thrifty()
    with Dump(model, tmp_path) as dump:
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
        dump.step()
    calls = [tensor.call for tensor in read(tmp_path).tensors if tensor.op == "inner" and tensor.role == "output"]
    assert calls == [0]


def test_an_error_in_the_run_leaves_no_half_step(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)

    def fail() -> None:
        with Dump(model, tmp_path):
            model(torch.ones(1, 2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert not model._forward_hooks


def test_a_full_disk_stops_the_run_at_the_end_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = open

    def full(path: Any, *args: Any, **kwargs: Any) -> Any:
        if "head.weight" in str(path):
            raise OSError(28, "No space left on device")
        return plain(path, *args, **kwargs)

    monkeypatch.setattr("viaduct.comparison.writer.open", full, raising=False)
    with pytest.raises(DiskFull, match=r"head\.weight.*No space left"):
        train(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ViaductError, match=str(tmp_path)):
        train(tmp_path / "dump")


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text("")
    with pytest.raises(ViaductError, match="dump cannot be written"):
        train(tmp_path / "dump")


def test_the_queue_is_bounded(tmp_path: Path) -> None:
    """With room for one tensor only the run waits, and all arrive."""
    from viaduct.comparison.index import Entry, Index

    writer = Writer(tmp_path / "step", limit=1)
    writer.open()
    waiting = []
    entries = [
        Entry(f"op{number}", "", "output", 0, number, dtype="float32", file=f"{number}.npy") for number in range(9)
    ]
    for entry in entries:
        writer.put(entry, 400, lambda: np.zeros(100, np.float32))
        waiting.append(len(writer._jobs))
    writer.wait()
    writer.finish(Index(0, 0, 1, {}, {}, entries))
    assert max(waiting) <= 1
    assert len(list((tmp_path / "step").glob("*.npy"))) == 9


def test_a_step_dumped_again_replaces_the_first(tmp_path: Path) -> None:
    train(tmp_path, only="head")
    with pytest.raises(BadRun, match=r"holds a dump already: step_000000[\s\S]*force=True"):
        train(tmp_path, only="conv")
    assert {tensor.op for tensor in read(tmp_path).tensors} == {"head"}
    side = dumped(tmp_path, only="conv", force=True)
    assert {tensor.op for tensor in side.tensors} == {"conv"}
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000"]


def test_a_pattern_that_names_nothing_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"no operator is called like 'haed'; close are: .*head"):
        train(tmp_path, only="haed")


def test_a_step_that_never_comes_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"did not come to step 7-9: 3 steps were taken"):
        train(tmp_path, steps="1,7-9", only="head")


def test_ranks_have_folders_of_their_own(tmp_path: Path) -> None:
    for rank in range(2):
        train(tmp_path, rank=rank, ranks=2, only="head")
    side = read(tmp_path)
    assert {tensor.rank for tensor in side.tensors} == {0, 1}
    assert read(tmp_path / "step_000000" / "rank_1").tensors[0].rank == 1


@pytest.mark.parametrize(
    "wrong", [{"mode": "some"}, {"level": "kernel"}, {"steps": "x"}, {"compiled": True, "level": "op"}]
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        Dump(nn.Linear(1, 1), tmp_path, **wrong)


def test_a_module_that_hands_its_input_on_has_no_gradient_of_its_own(tmp_path: Path) -> None:
    """Autograd knows one gradient for the tensor: the sum over all that use it, by whatever way they came to it."""
    side = dumped(tmp_path, model=Entangled(), length=1)
    told = {(t.op, t.role, t.index) for t in side.tensors if t.role.startswith("grad_")}
    assert not {op for op, _, _ in told if op.endswith("shortcut") or op.startswith("nothing")}
    assert {place for op, role, place in told if (op, role) == ("levels", "grad_output")} == {1}
    assert {place for op, role, place in told if (op, role) == ("levels", "grad_input")} == {0}
    assert np.array_equal(values(side, "first.shortcut", "output"), values(side, "first", "input"))
    through, around = values(side, "second.conv", "grad_input"), values(side, "second.act", "grad_input")
    assert np.allclose(values(side, "second", "grad_input"), through + around, atol=1e-6)


def test_the_gradient_of_a_leaf_is_found_through_several_modules(tmp_path: Path) -> None:
    model, images = Awkward(), torch.randn(2, 3, 8, 8, requires_grad=True)
    with Dump(model, tmp_path) as dump:
        model(images).sum().backward()
        dump.step()
    assert images.grad is not None
    assert np.array_equal(values(read(tmp_path), "network", "grad_input"), images.grad.numpy())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.lengthy
def test_taps_tell_what_hooks_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and differentiated by the compiler, and run without kernels of its own: the same bits."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compare_ways(tmp_path, Entangled, steps="0,1", atol=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("network", [Awkward, Entangled])
def test_a_compiled_network_is_looked_into_without_being_taken_apart(
    tmp_path: Path, network: Callable[[], nn.Module]
) -> None:
    compare_ways(tmp_path, network, steps="1", atol=1e-5)


def compare_ways(folder: Path, network: Callable[[], nn.Module], steps: str, atol: float) -> None:
    """Dump one network as written and compiled."""
    for compiled in (False, True):
        torch.manual_seed(0)
        model = network()
        model.apply(lambda module: setattr(module, "p", 0.0) if isinstance(module, nn.Dropout) else None)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with Dump(model, folder / str(compiled), steps=steps, compiled=compiled) as dump:
            run = dump.through(torch.compile(model, dynamic=False) if compiled else model)
            for number in range(2):
                torch.manual_seed(number)
                run(torch.randn(2, 3, 8, 8)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    sides = [read(folder / str(compiled)) for compiled in (False, True)]
    eager, graph = ({(t.op, t.role, t.index, t.call, t.step): t for t in side.tensors} for side in sides)
    assert eager.keys() == graph.keys()
    assert sides[0].edges == sides[1].edges
    assert list(dict.fromkeys(t.op for t in sides[0].tensors)) == list(dict.fromkeys(t.op for t in sides[1].tensors))
    for key, tensor in eager.items():
        assert np.allclose(np.load(str(tensor.path)), np.load(str(graph[key].path)), rtol=atol, atol=atol), key


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("steps", ["0-2", "1"])
def test_of_two_optimizers_both_take_part_in_the_step(tmp_path: Path, level: str, steps: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizers = [torch.optim.SGD(model[place].parameters(), 0.1) for place in (0, 2)]
    with Dump(model, tmp_path, steps=steps, level=level) as dump:
        for _ in range(3):
            model.zero_grad()
            model(input=torch.randn(3, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    side = read(tmp_path, verify=True)
    assert dump.written == ([1] if steps == "1" else [0, 1, 2])
    for step in dump.written:
        for op in ("0", "2"):
            update, gradient = (values(side, op, role, step=step) for role in ("update", "gradient"))
            assert np.abs(update + 0.1 * gradient).max() < 1e-6
        if level == "module":
            assert values(side, "network", "input", step=step).shape == (3, 4)
    assert {tensor.call for tensor in side.tensors} == {0} or level == "op"
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
