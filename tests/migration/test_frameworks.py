"""Framework of a file, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct
from migration.checking import migrate_source as migrate_text
from viaduct.migration.options import Options
from viaduct.migration.project import survey
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project

TF_IMPORT = "import tensorflow as tf\n"

TORCH, TF = frozenset({"torch"}), frozenset({"tensorflow"})
TRAIN = """import torch
from lib import tools

if __name__ == "__main__":
    model = torch.nn.Linear(2, 2).cuda()
    model(torch.ones(1, 2).cuda()).sum().backward()
"""
TRAIN_TF = """import tensorflow as tf

if __name__ == "__main__":
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
"""
EXPORT = (
    "def to_tensorflow(model):\n    import tensorflow as tf\n    with tf.compat.v1.Session() as sess:\n        pass\n"
)


def frameworks(**files: str) -> dict[str, frozenset[str]]:
    return survey((f"{name}.py", text.encode()) for name, text in files.items()).frameworks


def migrate_files(folder: Path, files: dict[str, str], to: str = "npu", **options: object) -> Outcome:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return migrate_project(folder, Options(to=to, **options))  # type: ignore[arg-type]


# ---- one file


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntry:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\n",
        "import torch\ndef export(model):\n    import tensorflow as tf\n",
        "import torch\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tensorflow as tf\n",
        "import torch\nif flag:\n    import tensorflow as tf\n",
        '"""import tensorflow as tf"""\nimport torch\n',
        "import torch  # like tensorflow\n",
        "from torch import nn\n",
        "import os, torch\n",
        "def f():\n    import torch\n",
        "import torchvision\n",
        "from transformers import Trainer\n",
        "import pytorch_lightning as pl\n",
        "import horovod.torch as hvd\n",
        "import tensorflow as tf\nimport torch\ntf.io.gfile.exists('a')\n",  # reads files, trains nothing
    ],
)
def test_a_file_is_pytorchs(source: str) -> None:
    assert frameworks(a=source)["a.py"] == TORCH


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\n",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\n",
        "try:\n    import tensorflow as tf\nexcept ImportError:\n    raise SystemExit('install it')\n",
        "from tensorflow import keras\n",
        "import keras\n",
        "import horovod.tensorflow as hvd\n",
        "from horovod import tensorflow as hvd\n",
        "def f():\n    import tensorflow as tf\n",
        "import tensorflow as tf  # torch has no such thing\n",
        "import tensorflow as tf\nfrom transformers import TFBertModel\n",
        "from npu_bridge.npu_init import *\n",
    ],
)
def test_a_file_is_tensorflows(source: str) -> None:
    assert frameworks(a=source)["a.py"] == TF


def test_a_file_in_which_both_train_is_both() -> None:
    source = "import tensorflow as tf\nimport torch\ntf.train.AdamOptimizer(1.0).minimize(loss)\n"
    assert frameworks(a=source)["a.py"] == TORCH | TF


# ---- files that import neither


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lib/__init__", "import torch\nfrom lib.tools import place\n"),
        ("main", "import torch\nimport lib.tools\n"),
        ("main", "import torch\nfrom lib import (\n    tools,\n)\n"),
        ("lib/net", "import torch\nfrom . import tools\n"),
        ("lib/net", "import torch\nfrom .tools import place as put\n"),
    ],
)
def test_a_file_belongs_to_those_that_import_it(name: str, text: str) -> None:
    tools = '"""The tensorflow version did this with tf.device."""\ndef place(model):\n    return model.cuda()\n'
    found = frameworks(**{"lib/tools": tools, name: text, "old": "import tensorflow\n", "lib/other": ""})
    assert found["lib/tools.py"] == TORCH
    assert found["old.py"] == TF


def test_a_file_belongs_to_those_that_it_imports_through_others() -> None:
    found = frameworks(start="import middle\nmiddle.go('cuda')\n", middle="from net import go\n", net="import torch\n")
    assert set(found.values()) == {TORCH}


def test_a_module_of_another_library_with_the_same_name_is_no_link() -> None:
    found = frameworks(utils="import tensorflow\n", lonely="X = 1\n", net="import torch\nimport torchvision.utils\n")
    assert found["utils.py"] == TF


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_a_docstring_about_tensorflow_does_not_hide_cuda_code(tmp_path: Path, to: str) -> None:
    tools = (
        '"""As in the tensorflow version; import tensorflow there."""\n'
        'def place(model, device="cuda"):\n    model.cuda()\n    return model.to(device)\n'
    )
    outcome = migrate_files(tmp_path, {"train.py": TRAIN, "lib/tools.py": tools, "lib/__init__.py": ""}, to)
    after = outcome.by_path["lib/tools.py"].new_text
    assert "cuda" not in after.replace("import tensorflow", "")


# ---- rules


def test_rules_of_one_framework_leave_files_of_the_other_alone(tmp_path: Path) -> None:
    flags = "import argparse\nargparse.ArgumentParser().add_argument('--all_reduce_spec', default='nccl')\n"
    outcome = migrate_files(
        tmp_path, {"train.py": TRAIN, "old.py": TRAIN_TF + flags, "export.py": f"import torch\n{EXPORT}"}
    )
    by_file = {file.path: {finding.rule.partition(".")[0] for finding in file.findings} for file in outcome.files}
    assert by_file == {"train.py": {"torch"}, "old.py": {"tf1"}, "export.py": {"torch"}}
    assert "default='nccl'" in outcome.by_path["old.py"].new_text


def test_an_optional_tensorflow_is_no_reason_to_refuse_any(tmp_path: Path) -> None:
    outcome = migrate_files(tmp_path, {"train.py": TRAIN, "export.py": f"import torch\n{EXPORT}"}, "any")
    assert outcome.by_path["train.py"].changed
    assert not [finding for finding in outcome.findings if finding.status in ("manual", "unresolved")]


def test_tensorflow_files_are_left_and_listed_with_any(tmp_path: Path) -> None:
    outcome = migrate_files(tmp_path, {"train.py": TRAIN, "old.py": TRAIN_TF}, "any")
    assert outcome.by_path["train.py"].changed
    assert not outcome.by_path["old.py"].changed
    left = [(finding.file, finding.rule) for finding in outcome.findings if finding.status == "unresolved"]
    assert ("old.py", "tf1.any_left") in left
    assert {file for file, _ in left} == {"old.py"}


# ---- start scripts


# ---- --exclude


@pytest.mark.parametrize(
    ("pattern", "gone"),
    [
        ("old.py", {"old.py", "lib/old.py"}),
        ("/old.py", {"old.py"}),
        ("./old.py", {"old.py", "lib/old.py"}),
        ("lib/", {"lib/old.py", "lib/tools.py", "lib/go.sh"}),
        ("lib/*.py", {"lib/old.py", "lib/tools.py"}),
        ("**/*.sh", {"lib/go.sh"}),
    ],
)
def test_excluded_files_are_copied_and_named(tmp_path: Path, pattern: str, gone: set[str]) -> None:
    files = {"train.py": TRAIN, "old.py": TRAIN_TF, "lib/old.py": TRAIN_TF, "lib/tools.py": TRAIN}
    files["lib/go.sh"] = "CUDA_VISIBLE_DEVICES=0 python train.py\n"
    outcome = migrate_files(tmp_path / "in", files, exclude=(pattern,))
    assert {skipped_file.path for skipped_file in outcome.walk.skipped} == gone
    assert all(skipped_file.is_deliberate for skipped_file in outcome.walk.skipped)
    assert not outcome.unread
    assert not gone & {file.path for file in outcome.files}


def test_a_negated_pattern_excludes_nothing(tmp_path: Path) -> None:
    outcome = migrate_files(tmp_path / "in", {"train.py": TRAIN, "old.py": TRAIN}, exclude=("!train.py",))
    assert not outcome.walk.skipped
    assert {"train.py", "old.py"} <= {file.path for file in outcome.files}


def test_a_copy_has_excluded_files_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.py").write_text(TRAIN.replace("from lib import tools\n", ""))
    (tmp_path / "in" / "old.py").write_text(TRAIN_TF)
    words = ["--to", "any", "--exclude", "old*", "--exclude", "typo.py", "--out", tmp_path / "out", "--strict"]
    done = viaduct("migrate", tmp_path / "in", *words, "--json", tmp_path / "all.json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "out" / "old.py").read_text() == TRAIN_TF
    assert "cuda()" not in (tmp_path / "out" / "train.py").read_text()
    assert "old.py" in done.stdout
    assert "--exclude typo.py matches no further file" in done.stderr
    assert "left out by --exclude" in (tmp_path / "all.json").read_text()


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = viaduct("migrate", tmp_path, "--exclude", "*.py")
    assert done.returncode == 2
    assert "leaves no Python file" in done.stderr


STRINGS = {
    "a flag": 'tf.app.flags.DEFINE_string("all_reduce_spec", "nccl", "x")\n',
    "a flag by keywords": 'from absl import flags\nflags.DEFINE_string(name="spec", default="nccl", help="x")\n',
    "an option": 'import argparse\nargparse.ArgumentParser().add_argument("--backend", default="nccl")\n',
    "a choice": 'def f(spec):\n    return spec == "nccl" or spec in ("nccl", "gloo")\n',
    "a default": 'def f(all_reduce_spec="nccl", device="cuda"):\n    return all_reduce_spec\n',
    "a dictionary": 'DEFAULTS = {"all_reduce": "nccl", "device": "cuda:0"}\n',
    "a method": "def f(x):\n    return x.cuda()\n",
    "a variable": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\n',
    "a variable with a default": 'import os\nos.environ.setdefault("CUDA_VISIBLE_DEVICES", "1")\n',
    "a command": 'import subprocess\nsubprocess.run(["python", "-m", "torch.distributed.launch", "x.py"])\n',
}


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("way", STRINGS)
@pytest.mark.parametrize(
    "framework", [TF_IMPORT, "import tensorflow.compat.v1 as tf\n", "from tensorflow import flags\n" + TF_IMPORT]
)
def test_strings_of_a_tensorflow_file_stay(framework: str, way: str, distributed: bool) -> None:
    source = framework + STRINGS[way]
    others = {"other.py": "import torch\nx = torch.zeros(2).cuda()\n"}
    result = migrate_text(source, others=others, distributed=distributed)
    assert result.after.decode() == source
    assert not [finding for finding in result.findings if finding.rule.startswith("torch.")]


def test_visible_devices_are_advice_in_a_tensorflow_file() -> None:
    result = migrate_text(TF_IMPORT + STRINGS["a variable"])
    assert [finding.status for finding in result.findings] == ["advice"]
    assert "ASCEND_DEVICE_ID" in result.findings[0].message
