"""Dumps of unchanged scripts; what they print and compute does not change."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from comparison.networks import check_checksums, values
from viaduct.comparison.dump import make_plan
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.comparison.records import StoredDump
from viaduct.comparison.script_dump import ScriptDump
from viaduct.scripts.runner import ScriptResult, load_script, run_script

HEAD = """
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3))
"""
TRAINING = (
    HEAD
    + """
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
try:
    for step in range(4):
        model.train()
        loss = criterion(model(torch.randn(2, 1, 4, 4)), torch.randint(0, 3, (2,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
        model.eval()
        with torch.no_grad():
            model(torch.ones(1, 1, 4, 4))
finally:
    print("finally")
"""
)


class Result:
    def __init__(self, dump: ScriptDump, ended: ScriptResult, folder: Path) -> None:
        self.dump, self.ended, self.folder = dump, ended, folder

    @property
    def side(self) -> StoredDump:
        side = read(self.folder)
        check_checksums(side)
        return side

    @property
    def ops(self) -> set[str]:
        return {tensor.op for tensor in self.side.tensors}


def dump_script(
    folder: Path, text: str, steps: str = "0", run_on: bool = False, by: Any = "auto", **plan: Any
) -> Result:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    dump = ScriptDump(make_plan(steps, **plan), folder / "dump", load_script(str(path)), run_on, by)
    return Result(dump, dump.run(), folder / "dump")


def test_it_ends_after_the_last_dumped_step_and_cleans_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = dump_script(tmp_path, TRAINING, "0,1")
    assert result.ended == ScriptResult(0, stopped=True)
    assert result.dump.written == [0, 1]
    assert capsys.readouterr().out.splitlines()[-1] == "finally"
    assert {"0", "1", "4", "network", "CrossEntropyLoss"} <= result.ops
    assert values(result.side, "CrossEntropyLoss", "input", 1).shape == (2,)


@pytest.mark.parametrize("level", ["module", "op"])
def test_what_it_computes_is_the_same_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str) -> None:
    (tmp_path / "plain.py").write_text(TRAINING)
    run_script(load_script(str(tmp_path / "plain.py")))
    plain = capsys.readouterr().out
    assert dump_script(tmp_path, TRAINING, "0,2", run_on=True, level=level).ended == ScriptResult(0)
    assert capsys.readouterr().out == plain


def test_evaluations_are_not_part_of_a_step(tmp_path: Path) -> None:
    side = dump_script(tmp_path, TRAINING, "1").side
    assert {tensor.call for tensor in side.tensors} == {0}
    assert values(side, "network", "input", step=1).shape == (2, 1, 4, 4)


def test_without_an_optimizer_each_pass_is_a_step(tmp_path: Path) -> None:
    loop = "for n in range(5):\n    with torch.no_grad():\n        model(torch.full((1, 1, 4, 4), float(n)))\n"
    text = HEAD + "model.eval()\n" + loop
    result = dump_script(tmp_path, text, "1,3")
    assert result.dump.written == [1, 3]
    assert values(result.side, "network", "input", step=3).max() == 3
    assert values(result.side, "network", "output", step=3).shape == (1, 3)
    assert result.side.edges["network"] == ("4",)


def test_without_an_optimizer_only_passes_of_the_main_network_are_steps(tmp_path: Path) -> None:
    """Also in steps that are not dumped, so a step has the same number whichever steps are chosen."""
    text = HEAD + "other = nn.Linear(3, 3)\nfor _ in range(3):\n    other(model(torch.ones(1, 1, 4, 4)))\n"
    for name, steps in (("two", "0-1"), ("one", "1")):
        (tmp_path / name).mkdir()
        result = dump_script(tmp_path / name, text, steps)
        assert result.dump.written[-1] == 1
        ops = {tensor.op for tensor in result.side.tensors if tensor.step == 1}
        assert {"0", "4", "network", "Linear"} <= ops


def test_keyword_arguments_of_the_outermost_network_are_inputs(tmp_path: Path) -> None:
    text = HEAD + "class Net(nn.Module):\n    def forward(self, x, *, mask):\n        return model(x) * mask\n"
    result = dump_script(
        tmp_path, text + "net = Net(); net.inner = model\nnet(torch.ones(1, 1, 4, 4), mask=torch.ones(3))\n"
    )
    assert values(result.side, "network", "input", 1).tolist() == [1, 1, 1]


def test_two_networks_keep_their_names_apart(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
other = nn.Sequential(nn.Linear(3, 1))
optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
other(model(torch.randn(2, 1, 4, 4))).sum().backward()
optimizer.step()
"""
    )
    result = dump_script(tmp_path, text)
    assert {"network", "0", "Sequential", "Sequential.0"} <= result.ops
    assert result.side.edges["Sequential.0"] == ("4",)


def test_a_compiled_script_is_dumped_eagerly(tmp_path: Path) -> None:
    text = HEAD + "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nrun = torch.compile(model, backend='eager')\n"
    text += "run(torch.randn(2, 1, 4, 4)).sum().backward()\noptimizer.step()\n"
    assert {"0", "4", "network"} <= dump_script(tmp_path, text).ops


def test_a_script_that_catches_the_stop_is_stopped_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = "        model(torch.randn(2, 1, 4, 4)).sum().backward()\n        optimizer.step()\n"
    loop = f"for n in range(50):\n    try:\n{work}"
    text = HEAD + "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n" + loop
    result = dump_script(
        tmp_path, text + "    except:\n        print('caught', n)\n        if n > 2:\n            raise\n"
    )
    assert result.ended.stopped
    assert capsys.readouterr().out.count("caught") == 4


def test_a_script_that_fails_is_reported_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = dump_script(tmp_path, TRAINING.replace("range(4)", "[0, 1 / 0]"), "0")
    assert result.ended.code == 1
    assert not result.dump.written
    assert not result.folder.exists() or not list(result.folder.iterdir())
    assert "scripted.py" not in capsys.readouterr().err


def test_what_a_script_did_is_known_if_no_step_was_reached(tmp_path: Path) -> None:
    seen = dump_script(tmp_path, TRAINING, "9").dump.seen
    assert (seen.steps, seen.optimizers) == (4, 1)
    assert "Sequential" in seen.networks


def test_autocast_is_written_down_as_the_precision(tmp_path: Path) -> None:
    text = TRAINING.replace(
        "loss = criterion(", "with torch.autocast('cpu', torch.bfloat16):\n            loss = criterion("
    )
    side = dump_script(tmp_path, text).side
    assert side.settings["precision"] == "autocast bfloat16"
    assert next(t.dtype for t in side.tensors if t.op == "0" and t.role == "output") == "bfloat16"


def test_of_two_optimizers_no_update_is_lost_and_none_is_in_another_step(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
first = torch.optim.SGD(model[0].parameters(), 0.1)
second = torch.optim.SGD(model[4].parameters(), 0.1)
for n in range(3):
    loss = nn.CrossEntropyLoss()(model(torch.randn(2, 1, 4, 4)), torch.randint(0, 3, (2,)))
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    first.step()
    second.step()
"""
    )
    result = dump_script(tmp_path, text, "0-2")
    assert result.dump.written == [0, 1, 2]
    for step in range(3):
        for op in ("0", "4"):
            update, gradient = (values(result.side, op, role, step=step) for role in ("update", "gradient"))
            assert abs(update + 0.1 * gradient).max() < 1e-6
        assert values(result.side, "network", "input", step=step).shape == (2, 1, 4, 4)
        assert {tensor.call for tensor in result.side.tensors} == {0}


def test_an_inner_module_called_alone_after_two_optimizers_begins_the_next_step(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
optimizers = [torch.optim.SGD(model[place].parameters(), 0.1) for place in (0, 4)]
for n in range(2):
    if n:
        model[4](torch.randn(2, 8)).sum().backward()
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
"""
    )
    result = dump_script(tmp_path, text, "0,1")
    assert result.dump.written == [0, 1]
    assert {tensor.call for tensor in result.side.tensors if tensor.step == 0} == {0}
    assert "Linear" in {tensor.op for tensor in result.side.tensors if tensor.step == 1}
