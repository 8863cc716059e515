"""The helper of `--to any` in a notebook's cell."""

from __future__ import annotations

import json
from pathlib import Path

from forked_viaduct import python
from migration.notebook_files import code, dump, notebook
from migration.test_helper_location import migrate_to_any
from viaduct.migration.inplace import write_in_place


def cells(path: Path) -> str:
    made = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in made if cell["cell_type"] == "code")


def with_more(path: Path) -> None:
    content = json.loads(path.read_text())
    content["cells"].append(code("with torch.cuda.amp.autocast():\n    torch.cuda.empty_cache()"))
    path.write_bytes(dump(content))


def carried_notebook(folder: Path) -> Path:
    path = folder / "n.ipynb"
    path.write_bytes(dump(notebook(code("import torch"), code("x = torch.ones(1).cuda()\nprint(x.device)"))))
    write_in_place(migrate_to_any(folder))
    assert "autocast" not in cells(path)
    with_more(path)
    return path


def test_the_cell_grows_as_well(tmp_path: Path) -> None:
    path = carried_notebook(tmp_path)
    write_in_place(migrate_to_any(tmp_path))
    text = cells(path)
    assert text.count("class AnyAccelerator") == 1
    assert "def autocast" in text
    done = python(text)
    assert done.stdout == "cpu\n", done.stderr
    assert not migrate_to_any(tmp_path).changed_files


def test_a_changed_cell_stays_and_what_it_lacks_is_reported(tmp_path: Path) -> None:
    path = carried_notebook(tmp_path)
    path.write_text(path.read_text().replace("class AnyAccelerator:", "class AnyAccelerator:  # mine"))
    outcome = migrate_to_any(tmp_path)
    write_in_place(outcome)
    assert "def autocast" not in cells(path)
    found = [finding.message for finding in outcome.findings if finding.rule == "engine.helper"]
    assert ["has no autocast" in found[0], "has no empty_cache" in found[1]] == [True, True]
    assert "move that file away" not in found[0]


def test_a_name_that_the_notebook_has_itself_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    own = code("accelerator = 'mine'\nx = torch.ones(1).cuda()\nprint(accelerator)")
    path.write_bytes(dump(notebook(code("import torch"), own)))
    write_in_place(migrate_to_any(tmp_path))
    with_more(path)
    write_in_place(migrate_to_any(tmp_path))
    text = cells(path)
    assert "any_accelerator = AnyAccelerator()" in text
    assert "with any_accelerator.autocast():" in text
    done = python(text)
    assert done.stdout == "mine\n", done.stderr
