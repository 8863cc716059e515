"""A dump holds what was computed, and changes nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from comparison.networks import Awkward, check_checksums, dump_training, train, values
from viaduct.comparison import Dump
from viaduct.comparison.dump import describe_tf32
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.devices import cuda
from viaduct.errors import BadRun, BadValue

pytestmark = pytest.mark.usefixtures("one_thread")


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


@pytest.mark.parametrize(
    ("capability", "switch", "message"),
    [
        ((9, 0), lambda: None, "convolutions"),
        ((9, 0), lambda: torch.set_float32_matmul_precision("high"), "convolutions and products"),
        ((9, 0), lambda: cuda.set_tf32(False), "no"),
        ((9, 0), lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"), "no"),
        ((7, 5), lambda: None, "no"),
    ],
)
def test_the_settings_say_what_is_rounded_to_tf32(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], switch: Callable[[], None], message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    try:
        switch()
        assert describe_tf32(torch.device("cuda")) == message
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True


def test_without_an_optimizer_the_loop_ends_a_step_by_calling_step(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with Dump(model, tmp_path, steps="1,2") as dump, torch.no_grad():
        for number in range(4):
            model(torch.full((1, 2), float(number)))
            dump.step()
    side = read(tmp_path)
    assert dump.written == [1, 2]
    assert values(side, "network", "input", step=2).tolist() == [[2.0, 2.0]]


def test_calling_step_after_the_optimizer_does_nothing(tmp_path: Path) -> None:
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


def test_an_error_in_a_step_leaves_no_partial_step(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)

    def fail() -> None:
        with Dump(model, tmp_path):
            model(torch.ones(1, 2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert not model._forward_hooks


def test_a_step_that_is_dumped_again_replaces_the_earlier_one(tmp_path: Path) -> None:
    train(tmp_path, only="head")
    with pytest.raises(BadRun, match=r"holds a dump already: step_000000[\s\S]*force=True"):
        train(tmp_path, only="conv")
    assert {tensor.op for tensor in read(tmp_path).tensors} == {"head"}
    side = dump_training(tmp_path, only="conv", force=True)
    assert {tensor.op for tensor in side.tensors} == {"conv"}
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000"]


def test_a_pattern_without_a_match_gives_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"no operator is called like 'haed'; close are: .*head"):
        train(tmp_path, only="haed")


def test_a_step_that_is_not_reached_gives_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"did not reach step 7-9: 3 steps were taken"):
        train(tmp_path, steps="1,7-9", only="head")
    with pytest.warns(UserWarning, match=r"did not reach step 107: 3 steps were taken, from 100\."):
        train(tmp_path / "resumed", steps="101,107", only="head", first_step=100)


def test_ranks_do_not_write_into_the_dump_of_a_single_process(tmp_path: Path) -> None:
    """A reader takes the index of the step's folder, so what the ranks wrote would not be compared."""
    train(tmp_path)
    with pytest.raises(BadRun, match=r"holds a dump already: step_000000/index\.json"):
        train(tmp_path, rank=0, ranks=2)


@pytest.mark.parametrize("earlier", [1, 4])
def test_ranks_that_replace_a_step_leave_nothing_of_an_earlier_dump(tmp_path: Path, earlier: int) -> None:
    for rank in range(earlier):
        train(tmp_path, rank=rank, ranks=earlier, only="conv")
    for rank in range(2):
        train(tmp_path, rank=rank, ranks=2, only="head", force=True)
    side = read(tmp_path)
    assert {(tensor.op, tensor.rank) for tensor in side.tensors} == {("head", 0), ("head", 1)}
    assert sorted(path.name for path in (tmp_path / "step_000000").iterdir()) == ["rank_0", "rank_1"]


def test_a_process_that_replaces_a_step_of_ranks_leaves_none_of_them(tmp_path: Path) -> None:
    for rank in range(2):
        train(tmp_path, rank=rank, ranks=2, only="conv")
    side = dump_training(tmp_path, only="head", force=True)
    assert {(tensor.op, tensor.rank) for tensor in side.tensors} == {("head", 0)}
    assert not list((tmp_path / "step_000000").glob("rank_*"))


def test_ranks_have_folders_of_their_own(tmp_path: Path) -> None:
    for rank in range(2):
        train(tmp_path, rank=rank, ranks=2, only="head")
    side = read(tmp_path)
    assert {tensor.rank for tensor in side.tensors} == {0, 1}
    assert read(tmp_path / "step_000000" / "rank_1").tensors[0].rank == 1


@pytest.mark.parametrize(
    "wrong", [{"mode": "some"}, {"level": "kernel"}, {"steps": "x"}, {"compiled": True, "level": "op"}]
)
def test_unknown_options_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        Dump(nn.Linear(1, 1), tmp_path, **wrong)


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("steps", ["0-2", "1"])
def test_the_updates_of_two_optimizers_are_in_one_step(tmp_path: Path, level: str, steps: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizers = [torch.optim.SGD(model[index].parameters(), 0.1) for index in (0, 2)]
    with Dump(model, tmp_path, steps=steps, level=level) as dump:
        for _ in range(3):
            model.zero_grad()
            model(input=torch.randn(3, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    side = read(tmp_path)
    check_checksums(side)
    assert dump.written == ([1] if steps == "1" else [0, 1, 2])
    for step in dump.written:
        for op in ("0", "2"):
            update, gradient = (values(side, op, role, step=step) for role in ("update", "gradient"))
            assert np.abs(update + 0.1 * gradient).max() < 1e-6
        if level == "module":
            assert values(side, "network", "input", step=step).shape == (3, 4)
    assert {tensor.call for tensor in side.tensors} == {0} or level == "op"
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
