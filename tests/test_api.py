"""The Python API: its surface, what importing it costs, its errors, and the examples of its page."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import viaduct
from viaduct.comparison import Dump
from viaduct.data import references
from viaduct.errors import BadValue, UnknownName, ViaductError
from viaduct.kernels import fused
from viaduct.recipes import load

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_the_surface_is_what_is_documented() -> None:
    functions = ["compare", "fuse", "fused_parts", "migrate", "records", "sink", "train", "unfuse"]
    assert viaduct.__all__ == ["Migration", "RecordLoader", "Run", *functions]
    for name in viaduct.__all__:
        assert getattr(viaduct, name).__doc__
    for name in functions:
        assert f"viaduct.{name}(" in PAGE.read_text()
    with pytest.raises(AttributeError, match="no attribute 'fuze'"):
        _ = viaduct.fuze  # type: ignore[attr-defined]


def test_importing_it_imports_no_torch_and_little_else() -> None:
    code = "import sys; before = set(sys.modules); import viaduct; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = {name.partition(".")[0] for name in ast.literal_eval(done.stdout)}
    assert added - set(sys.stdlib_module_names) == {"viaduct"}
    assert done.stdout.count("viaduct") == 1


def test_errors_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Closest is 'shapes_taster'"):
        viaduct.train("shapes_tester")
    with pytest.raises(BadValue, match="must be a name"):
        viaduct.train(3)  # type: ignore[arg-type]
    with pytest.raises(ViaductError):
        viaduct.compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ViaductError):
        viaduct.records(tmp_path, batch=2)
    with pytest.raises(BadValue, match="text of a script"):
        viaduct.migrate(b"import torch")  # type: ignore[arg-type]
    with pytest.raises(BadValue):
        viaduct.migrate("def broken(:\n")


def test_a_model_that_cannot_be_fused_is_returned_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Conv2d(3, 3, 3)
    before = set(vars(model))
    assert viaduct.fuse(model, torch.float16) is model
    assert set(vars(model)) - before == {"_viaduct_fuse_report"}
    report = viaduct.fused_parts(model)
    assert (report.fused, report.unfused) == ((), ())
    assert report.obstacle == "they are for cuda, and the model is on cpu"
    assert caplog.messages == [f"viaduct.fuse: no part runs on kernels of viaduct: {report.obstacle}"]
    assert viaduct.unfuse(model) is model
    assert set(vars(model)) == before
    assert "was not called" in str(viaduct.fused_parts(model).obstacle)


def test_a_model_that_must_be_fused_and_cannot_be_is_refused() -> None:
    with pytest.raises(BadValue, match="the model is on cpu"):
        viaduct.fuse(torch.nn.Linear(2, 2), strict=True)
    with pytest.raises(BadValue, match="the model has no parameters"):
        viaduct.fuse(torch.nn.ReLU(), strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, "fp32", 16, None])
def test_another_precision_of_the_kernels_is_refused(dtype: Any) -> None:
    with pytest.raises(BadValue, match=r"torch\.bfloat16 or torch\.float16"):
        viaduct.fuse(torch.nn.Linear(2, 2), dtype)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(BadValue, match="of type str"):
        viaduct.fuse("resnet50")  # type: ignore[type-var]


def test_a_model_for_an_old_card_or_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 2)
    monkeypatch.setattr(model, "parameters", lambda: [SimpleNamespace(device=torch.device("cuda", 0))])
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert fused.find_obstacle(model, torch.bfloat16) == "they are written in Triton, which is not installed"
    monkeypatch.setattr(fused, "find_spec", lambda name: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "does not compute in bfloat16 (compute capability 7.5)" in str(fused.find_obstacle(model, torch.bfloat16))
    assert fused.find_obstacle(model, torch.float16) is None


def test_a_report_names_each_reason_once() -> None:
    unfused = [("conv1", "of the stem"), *((f"layer1.{number}", "se is of type SEModule") for number in range(3))]
    assert str(fused.FuseReport(("layer2.0",), tuple(unfused))).splitlines() == [
        "1 parts run on kernels of viaduct",
        "conv1: as written, because of the stem",
        "layer1.0 and 2 more: as written, because se is of type SEModule",
    ]


def test_a_script_is_migrated_as_text() -> None:
    made = viaduct.migrate("import torch\nx = torch.ones(2).cuda()\n", to="npu")
    assert made.changed
    assert ".npu()" in made.text
    assert not viaduct.migrate("print(1)\n").changed


@pytest.fixture
def example_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the images and dumps that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(1)
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for number in range(3):
                pixels = noise.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    network = torch.nn.Linear(3, 2)
    for name in ("dump_a", "dump_b"):
        with Dump(network, tmp_path / name, steps="0") as dump:
            network(torch.ones(1, 3)).sum().backward()
            dump.step()
    return tmp_path


def test_the_examples_of_the_page_run(
    example_folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "viaduct")
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(examples) == 6
    names: dict[str, Any] = {}
    capsys.readouterr()
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    run = names["run"]
    assert isinstance(run, viaduct.Run)
    assert (run.finished, run.step) == (True, 2)
    assert run.report.is_file()
    assert run.checkpoints[-1].name == "step-2"
    assert any("Finished" in record.getMessage() for record in caplog.records)
    printed = capsys.readouterr()
    assert "torch.Size([2, 3, 32, 32])" in printed.out
    assert printed.err == ""
    assert "model is on cpu" in printed.out
    assert sum("cpu captures no graphs" in record.getMessage() for record in caplog.records) == 1
    assert names["drift"].exit_code == 0
    assert names["drift"].rows


def test_a_recipe_of_python_is_trained_and_found_finished(tmp_path: Path) -> None:
    recipe = replace(load("shapes_taster").recipe, steps=1)
    changes = {"data.global_batch": 8}
    for _ in range(2):
        run = viaduct.train(recipe, device="cpu", run=tmp_path / "run", changes=changes)
        assert (run.finished, run.step) == (True, 1)
    assert len(run.metrics("evaluation")) == 1


@pytest.mark.parametrize("to", ["tpu", "NPU", "cuda", "", None, 5, ["npu"]])
def test_another_target_of_a_migration_is_refused(to: Any) -> None:
    with pytest.raises(BadValue, match=r"^to is .*one of 'npu', 'mlu', 'any'") as refused:
        viaduct.migrate("import torch\n", to=to)
    assert repr(to) in str(refused.value)


def test_a_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(BadValue, match="at character 4, half of a surrogate pair"):
        viaduct.migrate("x = \udc80\n")


def test_the_path_of_a_script_is_not_taken_for_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not viaduct.migrate("train.py").changed  # no such file: an attribute of a variable
    (tmp_path / "train.py").write_text("import torch\n")
    assert not viaduct.migrate("train.py\n").changed
    with pytest.raises(BadValue, match="path of a file") as refused:
        viaduct.migrate("train.py")
    assert "read_text()" in str(refused.value)


WRONG_ARGUMENTS: dict[str, Any] = {
    "device is 3": lambda: viaduct.train("shapes_taster", device=3),  # type: ignore[arg-type]
    "changes has the key 5": lambda: viaduct.train("shapes_taster", changes={5: 2}),  # type: ignore[dict-item]
    "changes is of type list": lambda: viaduct.train("shapes_taster", changes=["steps=2"]),  # type: ignore[arg-type]
    "run is 5": lambda: viaduct.train("shapes_taster", run=5),  # type: ignore[arg-type]
    "run is empty": lambda: viaduct.train("shapes_taster", run=""),
    "data is 5": lambda: viaduct.train("shapes_taster", data=5),  # type: ignore[arg-type]
    "resume is 'no'": lambda: viaduct.train("shapes_taster", resume="no"),  # type: ignore[arg-type]
    "path is 5": lambda: viaduct.records(5, batch=2),  # type: ignore[arg-type]
    "batch is '2'": lambda: viaduct.records("photos", batch="2"),  # type: ignore[arg-type]
    "seed is True": lambda: viaduct.records("photos", batch=2, seed=True),
    "train is 'no'": lambda: viaduct.records("photos", batch=2, train="no"),  # type: ignore[arg-type]
    "device is None": lambda: viaduct.records("photos", batch=2, device=None),  # type: ignore[arg-type]
    "left is 5": lambda: viaduct.compare(5, 6),  # type: ignore[arg-type]
    "right is 6": lambda: viaduct.compare("dump", 6),  # type: ignore[arg-type]
    "fuse: the model is of type int": lambda: viaduct.fuse(5),  # type: ignore[type-var]
    "fuse: the model is of type type": lambda: viaduct.fuse(torch.nn.Linear),  # type: ignore[type-var]
    "strict is 'no'": lambda: viaduct.fuse(torch.nn.Linear(2, 2), strict="no"),  # type: ignore[arg-type]
    "unfuse: the model is of type int": lambda: viaduct.unfuse(5),  # type: ignore[type-var]
    "fused_parts: the model is of type str": lambda: viaduct.fused_parts("x"),  # type: ignore[arg-type]
    "dtype is ": lambda: viaduct.fuse(torch.nn.Linear(2, 2), []),  # type: ignore[arg-type]
    "kind is 'evaluatio'": lambda: viaduct.Run(Path("run"), True, 2).metrics("evaluatio"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", WRONG_ARGUMENTS)
def test_an_argument_of_a_wrong_type_is_refused_by_its_name(message: str) -> None:
    with pytest.raises(BadValue, match=message):
        WRONG_ARGUMENTS[message]()


def test_closed_records_are_not_read(example_folder: Path) -> None:
    with viaduct.records("photos", batch=2, size=32, classes=2, label_shift=-1) as loader:
        assert len(list(loader)) == len(loader)
    with pytest.raises(BadValue, match="records are closed"):
        iter(loader)


def test_a_warning_is_not_printed_where_the_caller_set_up_no_logging() -> None:
    code = "import viaduct, torch; viaduct.fuse(torch.nn.Linear(2, 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_scale_of_the_images_of_each_reference_is_documented(example_folder: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d., ]+) \| ([\d./, ]+) \| (\S+) … (\S+) \|$", PAGE.read_text(), re.M)
    assert sorted(row[0] for row in rows) == list(references.names())
    for name, mean, scale, low, high in rows:
        preprocessing = references.load(name)
        means = [float(part) for part in mean.split(",")]
        scales = [
            float(Fraction(part.strip()) if "." not in part else 1 / float(part.split("/")[1]))
            for part in scale.split(",")
        ]
        assert set(means) == set(preprocessing.mean)
        assert set(scales) == set(preprocessing.scale)
        black, white = (
            [(pixel - mean) * scale for mean, scale in zip(preprocessing.mean, preprocessing.scale, strict=True)]
            for pixel in (0, 255)
        )
        assert float(low) == pytest.approx(min(black), abs=0.5 if name == "official" else 0.1)
        assert float(high) == pytest.approx(max(white), abs=0.5 if name == "official" else 0.1)
