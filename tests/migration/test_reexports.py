"""Frameworks and functions that reach a script by way of the project's own modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.small_project import migrated_project
from viaduct.migration.results import Outcome
from viaduct.migration.summary import summarise

UTILS = "import tensorflow as tf\ndef read(files):\n    return tf.data.TFRecordDataset(files)\n"


def migrate(folder: Path, files: dict[str, str], to: str = "npu") -> Outcome:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return migrated_project(folder, to=to)


@pytest.mark.parametrize(
    "main",
    [
        "from utils import *\nwith tf.Session() as s:\n    s.run(1)\n",
        "from ops import *\nfrom utils import *\nwith tf.Session() as s:\n    s.run(1)\n",
        "from utils import tf\nwith tf.Session() as s:\n    s.run(1)\n",
        "from utils import tf as flow\nwith flow.Session() as s:\n    s.run(1)\n",
        "import utils\nwith utils.tf.Session() as s:\n    s.run(1)\n",
        "import utils as u\nwith u.tf.Session() as s:\n    s.run(1)\n",
    ],
)
@pytest.mark.parametrize("folder", ["", "scripts/", "a/b/"])
def test_a_session_is_configured_though_the_script_never_names_tensorflow(
    tmp_path: Path, main: str, folder: str
) -> None:
    outcome = migrate(tmp_path, {f"{folder}main.py": main, f"{folder}utils.py": UTILS, f"{folder}ops.py": "x = 1\n"})
    assert "NpuOptimizer" in outcome.by_path[f"{folder}main.py"].new_text
    assert summarise(outcome).verdict == "complete"


def test_a_chain_of_star_imports_is_followed(tmp_path: Path) -> None:
    files = {
        "main.py": "from a import *\nx = torch.ones(2).cuda()\ntorch.cuda.synchronize()\n",
        "a.py": "from b import *\n",
        "b.py": "from c import *\n",
        "c.py": "import torch\n",
    }
    assert ".npu()\ntorch.npu.synchronize()" in migrate(tmp_path, files).by_path["main.py"].new_text


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    files = {
        "main.py": "from a import *\nwith tf.Session() as s:\n    pass\n",
        "a.py": "from b import *\n",
        "b.py": "from a import *\nfrom main import *\nimport tensorflow as tf\n",
    }
    assert "NpuOptimizer" in migrate(tmp_path, files).by_path["main.py"].new_text


def test_many_modules_that_import_each_other_are_followed_once_each(tmp_path: Path) -> None:
    modules = [f"module{number}" for number in range(40)]
    stars = "".join(f"from {module} import *\n" for module in modules)
    files = {f"{module}.py": stars for module in modules} | {
        "main.py": f"{stars}x = torch.ones(missing).cuda()\n",
        "module39.py": f"{stars}import torch\n",
    }
    assert ".npu()" in migrate(tmp_path, files).by_path["main.py"].new_text


@pytest.mark.parametrize(
    "init", ["from .read import make\n", "from pipeline.read import make\n", "from .read import *\n"]
)
def test_a_function_that_a_package_gathers_is_found(tmp_path: Path, init: str) -> None:
    files = {
        "main.py": "from pipeline import make\nds = make()\nds = ds.batch(3)\n",
        "pipeline/__init__.py": f"{init}\n",
        "pipeline/read.py": "import tensorflow as tf\ndef make():\n    return tf.data.Dataset.range(9)\n",
    }
    assert "ds.batch(3, drop_remainder=True)" in migrate(tmp_path, files).by_path["main.py"].new_text


def test_the_neighbour_is_meant_where_two_modules_have_one_name(tmp_path: Path) -> None:
    files = {
        "one/main.py": "from utils import make\nds = make().batch(3)\n",
        "one/utils.py": "import tensorflow as tf\ndef make():\n    return tf.data.Dataset.range(9)\n",
        "two/utils.py": "import tensorflow as tf\ndef make():\n    return Loader()\n",
    }
    assert "drop_remainder=True" in migrate(tmp_path, files).by_path["one/main.py"].new_text


def test_a_name_of_the_user_is_not_taken_for_a_framework(tmp_path: Path) -> None:
    files = {
        "main.py": "from utils import *\ntf = open('x')\ntf.Session()\n",
        "utils.py": UTILS,
        "other.py": "from helpers import *\ntf.Session()\n",
        "helpers.py": "class tf:\n    Session = int\n",
    }
    outcome = migrate(tmp_path, files)
    assert not outcome.by_path["other.py"].changed
    assert not outcome.by_path["main.py"].changed


@pytest.mark.parametrize("name", ["tensorflow", "torch"])
def test_a_folder_called_as_a_framework_does_not_take_its_place(tmp_path: Path, name: str) -> None:
    files = {
        "train.py": "import tensorflow as tf\nimport torch\ntorch.cuda.init()\nwith tf.Session() as s:\n"
        "    s.run(tf.global_variables_initializer())\n",
        f"convert/{name}/__init__.py": "from .network import Session, cuda\n",
        f"convert/{name}/network.py": f"import {name}\nclass Session:\n    pass\nclass cuda:\n    pass\n",
    }
    new = migrate(tmp_path, files).by_path["train.py"].new_text
    assert "NpuOptimizer" in new
    assert "torch.npu.init()" in new
