"""Notes about operators: one for each operator and project."""

from __future__ import annotations

from pathlib import Path

from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project

NET = """import torch
import torch.nn.functional as F


def warp(x, grid):
    spread = torch.std(x)
    return F.grid_sample(x, grid)
"""


def migrate_files(folder: Path, **files: str) -> Outcome:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(f"{path.name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return migrate_project(folder, Options())


def test_an_operator_gets_one_note_with_its_count_and_first_places(tmp_path: Path) -> None:
    outcome = migrate_files(tmp_path, **{f"net{number}": NET for number in range(7)})
    notes = outcome.unfinished_findings
    assert [(note.message.split(" on ")[0], note.risk, note.file, note.line) for note in notes] == [
        ("nn.functional.grid_sample", "high", "net0.py", 7),
        ("std", "low", "net0.py", 6),
    ]
    assert "7 places: net0.py:7, net1.py:7" in notes[0].message
    assert "and 2 more" in notes[0].message
    assert "共 7 处" in notes[0].message_zh
    assert len([location for location in outcome.places if location.requirement == "torch_functions"]) == 2


def test_a_single_place_is_reported_as_it_is(tmp_path: Path) -> None:
    note = migrate_files(tmp_path, net=NET).unfinished_findings[0]
    assert "places:" not in note.message


def test_what_works_on_the_host_is_left_out(tmp_path: Path) -> None:
    data = (
        "import numpy as np\nimport torch\n"
        "class Samples(torch.utils.data.Dataset):\n"
        "    def __getitem__(self, at):\n        return torch.std(self.rows[at])\n"
        "y = torch.std(torch.from_numpy(np.ones(3)))\n"
        "z = torch.std(x.cpu())\n"
    )
    assert not migrate_files(tmp_path, data=data, tests__test_net=NET, setup=NET, net_test=NET).unfinished_findings


def test_a_tensor_of_the_cpu_is_none_under_a_default_device(tmp_path: Path) -> None:
    text = "import torch\ntorch.set_default_device('npu')\ny = torch.cdist(torch.ones(3, 3), torch.ones(3, 3))\n"
    assert [finding.rule for finding in migrate_files(tmp_path, net=text).unfinished_findings] == ["torch.operators"]
