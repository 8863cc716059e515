"""Files that two sides wrote are compared by what they contain, and what is not compared says why."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from carrying.carry_scripts import carry_copy, carry_script, migrate_text, replace_once
from viaduct.carrying.further_results import ComparedRuns
from viaduct.carrying.written_files import WrittenFile, compare_written, list_written
from viaduct.training.events import EventFile
from viaduct.weights.bundle import write_bundle

Files = dict[str, Any]


def make_run(folder: Path, name: str, files: Files) -> Any:
    """A run that wrote these files: bytes, text, or a function that writes to a path."""
    work = folder / name / "work"
    for path, content in files.items():
        target = work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(target)
        else:
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
    wrote = sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file())
    plan = SimpleNamespace(
        visible_start_folder=str(work), record_folder=str(folder / name), source_tree=str(folder / "tree")
    )
    return SimpleNamespace(plan=plan, summary=SimpleNamespace(written_files=wrote))


def compare(folder: Path, left: Files, right: Files, again: Files | None = None, **more: Any) -> dict[str, WrittenFile]:
    sides = {"original": left, "migrated": right, "original_again": again or left, "migrated_again": right}
    made = {name: make_run(folder, name, files) for name, files in sides.items()}
    if "perturbed" in more:
        more["perturbed"] = make_run(folder, "shaken", more["perturbed"])
    return {file.name: file for file in compare_written(ComparedRuns(**made, **more))}


def torch_writer(**values: Any) -> Any:
    import torch

    return lambda path: torch.save(values, path)


def weights(shift: float = 0.0) -> Any:
    import torch

    return {"fc.weight": torch.full((3, 2), 1.0 + shift), "steps": torch.tensor(7)}


def test_a_checkpoint_is_compared_tensor_by_tensor(tmp_path: Path) -> None:
    options = argparse.Namespace(lr=0.1, device="cuda:0")
    other = argparse.Namespace(lr=0.1, device="npu:0")
    found = compare(
        tmp_path,
        {"a.pt": torch_writer(model=weights(), args=options), "b.pt": torch_writer(model=weights())},
        {"a.pt": torch_writer(model=weights(), args=other), "b.pt": torch_writer(model=weights(0.1))},
    )
    assert (found["a.pt"].state, found["a.pt"].count) == ("equal", 4)
    assert found["b.pt"].state == "differs"
    assert "model.fc.weight is off by 0.1" in found["b.pt"].detail


def test_a_checkpoint_in_half_precision_differs(tmp_path: Path) -> None:
    import torch

    weight = torch.linspace(1, 2, 7)
    found = compare(tmp_path, {"a.pt": torch_writer(w=weight)}, {"a.pt": torch_writer(w=weight.half())})
    assert found["a.pt"].state == "differs"


def test_a_learning_rate_in_a_checkpoint_that_differs_is_named(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a.pt": torch_writer(lr=0.1, w=weights())}, {"a.pt": torch_writer(lr=0.2, w=weights())})
    assert "lr is 0.1 in the original, 0.2 after the migration" in found["a.pt"].detail


def test_the_perturbed_runs_file_sets_the_tolerance(tmp_path: Path) -> None:
    left, right = {"a.pt": torch_writer(w=weights())}, {"a.pt": torch_writer(w=weights(1e-4))}
    assert compare(tmp_path / "without", left, right)["a.pt"].state == "differs"
    found = compare(tmp_path / "with", left, right, perturbed={"a.pt": torch_writer(w=weights(2e-5))}, allowed=1e-3)
    assert found["a.pt"].state == "rounding"


def test_a_file_of_tensors_that_are_mostly_rounding_is_not_compared(tmp_path: Path) -> None:
    left, right = {"a.pt": torch_writer(w=weights()["fc.weight"])}, {"a.pt": torch_writer(w=weights(0.1)["fc.weight"])}
    found = compare(tmp_path, left, right, perturbed={"a.pt": torch_writer(w=weights(0.1)["fc.weight"])}, allowed=1e-3)
    assert (found["a.pt"].state, found["a.pt"].detail) == ("not compared", "1 tensor, mostly rounding")


def test_lines_count_where_a_side_repeats_them_and_times_do_not(tmp_path: Path) -> None:
    log = "2026-11-16 14:51:02 epoch {} loss {} on {} took {} s\n"
    found = compare(
        tmp_path,
        {"a.log": log.format(1, 0.5, "cuda:0", 3.2), "b.csv": "step,loss\n1,0.50\n", "c.txt": "done\n"},
        {
            "a.log": log.format(1, 0.5, "npu:0", 9.9).replace("14:51", "14:52"),
            "b.csv": "step,loss\n1,0.75\n",
            "c.txt": "done\nextra\n",
        },
        again={"a.log": log.format(1, 0.5, "cuda:0", 4.4), "b.csv": "step,loss\n1,0.50\n", "c.txt": "done\n"},
    )
    assert found["a.log"].state == "equal"
    assert (found["b.csv"].state, "'1,0.50' in the original" in found["b.csv"].detail) == ("differs", True)
    assert found["c.txt"].detail == "'extra' is written by the migrated script only"


def test_a_file_of_one_side_differs_unless_its_name_holds_the_time_or_the_device(tmp_path: Path) -> None:
    found = compare(
        tmp_path,
        {"run_20261116-145102/a_cuda.txt": "x\n", "only.txt": "x\n", "once.txt": "x\n"},
        {"run_20261116-145230/a_npu.txt": "x\n"},
        again={"run_20261116-145103/a_cuda.txt": "x\n", "only.txt": "x\n"},
    )
    assert {name: file.state for name, file in found.items()} == {
        "run_20261116-145102/a_cuda.txt": "equal",
        "only.txt": "differs",
        "once.txt": "not compared",
    }


def test_scalars_of_tensorboard_are_compared_at_the_steps_that_both_have(tmp_path: Path) -> None:
    def events(**by_step: float) -> Any:
        def write(path: Path) -> None:
            file = EventFile(path.parent, 0)
            for step, loss in by_step.items():
                file.write_scalars(int(step[1:]), {"loss": loss})
            made = next(path.parent.glob("events.out.tfevents.*"))
            made.rename(path)

        return write

    name = "events.out.tfevents.{}.host"
    found = compare(
        tmp_path,
        {f"a/{name.format(1)}": events(s1=0.5, s2=0.25), f"b/{name.format(1)}": events(s1=0.5)},
        {f"a/{name.format(2)}": events(s2=0.25, s4=0.1), f"b/{name.format(2)}": events(s1=0.75)},
    )
    assert (found[f"a/{name.format(1)}"].state, found[f"a/{name.format(1)}"].count) == ("equal", 1)
    unpaired = "not compared, since only one side writes it: loss at step 1; loss at step 4"
    assert found[f"a/{name.format(1)}"].detail == f"1 value equal; {unpaired}"
    assert "loss at step 1 is 0.5 in the original" in found[f"b/{name.format(1)}"].detail


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    found = compare(
        tmp_path,
        {"a.bin": b"\0\1", "m.meta": b"\0\1", "same.bin": b"\0", "whole.pt": torch_writer(args=pytest.UsageError("x"))},
        {"a.bin": b"\0\2", "m.meta": b"\0\2", "same.bin": b"\0", "whole.pt": torch_writer(args=pytest.UsageError("y"))},
    )
    assert {name: file.state for name, file in found.items()} == {
        "a.bin": "not compared",
        "m.meta": "not compared",
        "same.bin": "equal",
        "whole.pt": "not compared",
    }
    assert "graph" in found["m.meta"].detail
    assert "UsageError, which is not executed" in found["whole.pt"].detail


def test_a_pickled_network_is_compared_by_the_bytes_of_its_tensors(tmp_path: Path) -> None:
    import torch

    def pickle_network(value: float, **more: str) -> Any:
        network = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(network.weight, value)
        torch.nn.init.constant_(network.bias, 0.0)
        return lambda path: torch.save({"network": network, **more}, path)

    found = compare(
        tmp_path,
        {"a.pt": pickle_network(1.0, device="cuda"), "b.pt": pickle_network(1.0)},
        {"a.pt": pickle_network(1.0, device="npu"), "b.pt": pickle_network(2.0)},
    )
    assert found["a.pt"].state == "equal"
    assert "pickled torch.nn.modules.linear.Linear, which is not executed" in found["a.pt"].detail
    assert (found["b.pt"].state, "its bytes differ" in found["b.pt"].detail) == ("not compared", True)


def test_caches_of_python_are_no_results(tmp_path: Path) -> None:
    run = make_run(tmp_path, "original", {"__pycache__/a.pyc": b"x", "a.txt": "x"})
    assert list(list_written(run)) == ["a.txt"]


EVALUATES = """\
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.constant(np.random.RandomState(0).normal(size=(8, 4)).astype(np.float32))
w = tf.get_variable("w", [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
metric = tf.reduce_max(tf.matmul(x, w)) * 1.0
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for number in range(3):
        sess.run(step)
    best = sess.run(metric)
"""


@pytest.mark.slow
def test_an_evaluation_of_tensorflow_that_differs_is_not_proved(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow_estimator")
    text = replace_once(migrate_text(EVALUATES, tmp_path, distributed=False), "w)) * 1.0", "w)) * 1.5")
    result = carry_copy(tmp_path, EVALUATES, text)
    assert result.code == 3, result.stdout
    assert "without gradients (an evaluation) of rank 0" in result.stdout


SAVES = """\
import json, torch
from torch import nn

torch.set_num_threads(1)
net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(3):
    x = torch.randn(8, 4).cuda()
    loss = nn.functional.cross_entropy(net(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
states = {"model": net.state_dict(), "schedule": schedule.state_dict(), "optimizer": optimizer.state_dict()}
torch.save({**states, "device": str(x.device)}, "model.pt")
with open("result.json", "w") as file:
    json.dump({"loss": loss.item(), "threshold": 0.5}, file)
"""


@pytest.mark.slow
def test_files_are_compared_from_end_to_end(tmp_path: Path) -> None:
    result = carry_script(tmp_path, SAVES)
    assert result.code == 0, result.stdout
    assert {file["name"]: file["state"] for file in result.record["files"]} == {
        "model.pt": "equal",
        "result.json": "equal",
    }
    assert "2 written files" in result.stdout
    (tmp_path / "by_hand").mkdir()
    copy = (result.out / "migrated" / "train.py").read_text().replace('"threshold": 0.5', '"threshold": 0.6')
    (tmp_path / "by_hand" / "train.py").write_text(copy)
    second = carry_script(tmp_path, SAVES, "--migrated", "by_hand", "--force")
    assert second.code == 3
    assert "result.json: " in second.stdout


def test_values_that_rounding_changed_are_not_called_equal(tmp_path: Path) -> None:
    left, right = pickle.dumps({"best": 0.5}), pickle.dumps({"best": 0.5000001})
    found = compare(tmp_path, {"a.pkl": left}, {"a.pkl": right}, allowed=1e-6)["a.pkl"]
    assert (found.state, found.detail) == ("rounding", "1 value within rounding")


def test_a_tensor_that_is_not_read_is_not_counted_as_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from viaduct.carrying import contents

    def write(path: Path) -> None:
        write_bundle(path.with_suffix(""), {"dense/bias": torch.ones(2), "table": torch.ones(1, dtype=torch.int64)})

    monkeypatch.delitem(contents.NUMPY_TYPES, "int64")
    found = compare(tmp_path, {"model.index": write}, {"model.index": write})["model.index"]
    assert (found.state, found.detail, found.count) == ("equal", "1 tensor equal; not read: table", 1)


def test_images_of_16_bits_are_compared_in_all_bits_and_several_in_one_file_not_at_all(tmp_path: Path) -> None:
    from PIL import Image

    def write(value: int) -> Any:
        return lambda path: Image.fromarray(np.full((2, 2), value, np.uint16)).save(path)

    def write_two(value: int) -> Any:
        frames = [Image.new("L", (2, 2), shade) for shade in (0, value)]
        return lambda path: frames[0].save(path, save_all=True, append_images=frames[1:])

    found = compare(
        tmp_path, {"a.png": write(300), "b.gif": write_two(90)}, {"a.png": write(60000), "b.gif": write_two(200)}
    )
    assert found["a.png"].state == "differs"
    assert (found["b.gif"].state, found["b.gif"].detail) == (
        "not compared",
        "it holds 2 images; only files with one are compared",
    )


def test_lines_that_differ_in_what_does_not_count_are_not_called_equal(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a.log": "on cuda\n"}, {"a.log": "on npu\n"})["a.log"]
    assert found.detail == "1 line equal except for device names and numbers that do not repeat themselves"


def test_lines_within_rounding_name_what_does_not_count(tmp_path: Path) -> None:
    left, right = {"a.log": "loss 0.5000 seen 7\n"}, {"a.log": "loss 0.5001 seen 8\n"}
    found = compare(tmp_path, left, right, again={"a.log": "loss 0.5000 seen 9\n"}, allowed=1e-3)["a.log"]
    detail = "1 line within rounding except for device names and numbers that do not repeat themselves"
    assert (found.state, found.detail) == ("rounding", detail)


def test_values_that_do_not_repeat_themselves_are_named(tmp_path: Path) -> None:
    left, again = ({"a.pt": torch_writer(lr=0.1, seen=count)} for count in (1, 2))
    found = compare(tmp_path, left, {"a.pt": torch_writer(lr=0.1, seen=3)}, again=again)["a.pt"]
    assert found.detail == "1 value equal; not compared, since a second run writes another value: seen"


def test_lines_in_another_order_are_not_called_missing(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a.txt": "one\ntwo\n"}, {"a.txt": "two\none\n"})["a.txt"]
    assert found.state == "differs"
    assert "by the original more often or at another place" in found.detail


def test_an_empty_container_of_one_side_differs(tmp_path: Path) -> None:
    left, right = {"a.pt": torch_writer(lr=0.1, state={"momentum": []})}, {"a.pt": torch_writer(lr=0.1, state={})}
    found = compare(tmp_path, left, right)["a.pt"]
    assert found.state == "differs"
    assert "state.momentum is (empty) in the original, not there after the migration" in found.detail


def test_pixels_that_do_not_repeat_themselves_are_not_compared(tmp_path: Path) -> None:
    from PIL import Image

    def write(value: int) -> Any:
        return lambda path: Image.new("L", (2, 2), value).save(path)

    found = compare(tmp_path, {"a.png": write(0)}, {"a.png": write(90)}, again={"a.png": write(200)})["a.png"]
    assert found.state == "not compared"
    assert found.detail.endswith("since a second run writes another value: pixels")


def test_lines_that_do_not_repeat_themselves_are_counted(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a.txt": "x\nonce\n"}, {"a.txt": "x\n"}, again={"a.txt": "x\n"})["a.txt"]
    assert (found.state, found.count) == ("equal", 1)
    assert found.detail == "1 line equal; not compared, since a second run does not write it: 1 line"
