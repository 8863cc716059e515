"""Facts about a script from its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import BadValue
from viaduct.rehearsal import project


def write_project(folder: Path, **files: str) -> project.Project:
    for name, source in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return project.read_project(folder / "train.py")


def test_an_import_that_may_not_happen_is_not_missing(tmp_path: Path) -> None:
    source = (
        "import torch, torch_npu\n"
        "try:\n    import not_there\nexcept ImportError:\n    not_there = None\n"
        "def later():\n    import not_there_either\n"
        "import beside\n"
    )
    project.refuse_missing_packages(write_project(tmp_path, train=source, beside=""))


def test_what_a_file_beside_the_script_needs_is_missing_too(tmp_path: Path) -> None:
    known = write_project(
        tmp_path, train="import torch\nfrom nets import small\n", nets__small="import not_there\n", nets__x=""
    )
    with pytest.raises(BadValue, match=r"not_there \(small.py:1\)"):
        project.refuse_missing_packages(known)


EXPORT = "def export(net):\n    import tensorflow as tf\n    tf.Session()\n"


def test_both_frameworks_imported_the_one_that_trains_is_taken(tmp_path: Path) -> None:
    both = "import torch\nimport tensorflow as tf\n"
    assert project.find_framework(write_project(tmp_path, train=both + "loss.backward()\n")) == "torch"
    assert project.find_framework(write_project(tmp_path, train=both + "opt.minimize(loss)\n")) == "tf1"


@pytest.mark.parametrize(
    "optional", ["try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\n", EXPORT]
)
def test_an_import_that_may_not_happen_does_not_choose_the_framework(tmp_path: Path, optional: str) -> None:
    assert project.find_framework(write_project(tmp_path, train=f"import torch\n{optional}net.eval()\n")) == "torch"
    files = {"train": "import torch\nimport export\nnet.eval()\n", "export": "import tensorflow as tf\n"}
    assert project.find_framework(write_project(tmp_path, **files)) == "torch"


def test_the_framework_may_be_imported_by_a_package_of_the_project(tmp_path: Path) -> None:
    files = {"train": "from core import run\n", "core__run": "from . import net\n", "core__net": "import torch\n"}
    assert project.find_framework(write_project(tmp_path, **files)) == "torch"


def test_a_relative_import_above_the_root_is_left_to_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nfrom {'.' * 60}x import y\n")
    assert project.read_project(script).script == script


def test_a_package_with_another_name_on_pypi_is_not_installed_by_that_name() -> None:
    assert project.make_install_advice(["cv2"]) == "pip install opencv-python"
    assert "pip install" not in project.make_install_advice(["google"])
