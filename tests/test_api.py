"""The Python API: its surface, what importing it costs, its errors, and the examples of its page."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import viaduct
from viaduct.comparison import Dump
from viaduct.errors import BadValue, UnknownName, ViaductError
from viaduct.recipes import load

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_the_surface_is_what_is_documented() -> None:
    assert viaduct.__all__ == ["Migration", "RecordLoader", "Run", "compare", "migrate", "records", "train"]
    for name in viaduct.__all__:
        assert getattr(viaduct, name).__doc__
    for name in ("compare", "migrate", "records", "train"):
        assert f"viaduct.{name}(" in PAGE.read_text()
    with pytest.raises(AttributeError, match="no attribute 'fuze'"):
        _ = viaduct.fuze  # type: ignore[attr-defined]


def test_importing_it_imports_no_torch_and_little_else() -> None:
    code = "import sys; before = set(sys.modules); import viaduct; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = done.stdout
    assert "torch" not in added
    assert "numpy" not in added
    assert added.count("viaduct") == 1


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
    assert len(examples) == 4
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
    assert names["drift"].exit_code == 0
    assert names["drift"].rows


def test_a_recipe_of_python_is_trained_and_found_finished(tmp_path: Path) -> None:
    recipe = replace(load("shapes_taster").recipe, steps=1)
    changes = {"data.global_batch": 8}
    for _ in range(2):
        run = viaduct.train(recipe, device="cpu", run=tmp_path / "run", changes=changes)
        assert (run.finished, run.step) == (True, 1)
    assert len(run.metrics("evaluation")) == 1
