"""The plug-in is imported where a program starts, if its device is set in a file that does not import torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.small_project import migrated_project
from viaduct.migration.results import Outcome
from viaduct.migration.source import lines_of
from viaduct.migration.summary import summarise

USES = "net = torch.nn.Linear(2, 2).to(DEVICE)\n"


def migrate(folder: Path, files: dict[str, str], to: str = "npu") -> Outcome:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    return migrated_project(folder, to=to)


def texts(outcome: Outcome) -> dict[str, str]:
    return {file.path: file.after.decode() for file in outcome.files if file.changed}


def test_a_device_of_the_host_needs_no_plug_in(tmp_path: Path) -> None:
    files = {"train.py": f"import torch\nfrom config import DEVICE\n{USES}", "config.py": 'DEVICE = "cpu"\n'}
    assert texts(migrate(tmp_path, files)) == {}


def test_a_device_in_the_script_itself_is_not_said_to_be_set_elsewhere(tmp_path: Path) -> None:
    choice = "device = 'cuda'\nif torch.npu.is_available():\n    device = 'npu'\n"
    outcome = migrate(tmp_path, {"train.py": f"import torch\n{choice}net = torch.nn.Linear(2, 2).to(device)\n"})
    (message,) = [finding.message for finding in outcome.findings if finding.rule == "torch.plugin"]
    assert message == "import torch_npu: this program may use the card, and none of its files imports the plug-in"


def test_a_script_that_reaches_the_plug_in_gets_no_second_import(tmp_path: Path) -> None:
    files = {
        "train.py": f"import torch\nfrom config import DEVICE\nfrom net import Net\n{USES}",
        "config.py": 'DEVICE = "cuda"\n',
        "net.py": "import torch\ndef Net(x):\n    return torch.nn.Linear(2, 2).cuda()\n",
    }
    found = texts(migrate(tmp_path, files))
    assert "train.py" not in found
    assert "import torch_npu" in found["net.py"]


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("import torch\n", "import torch\nimport torch_{to}\n"),
        ("import os\nfrom torch import nn\nimport torch\n", "import os\nfrom torch import nn\nimport torch_{to}\n"),
        ("import torch\r\n", "import torch\r\nimport torch_{to}\r\n"),
        ('"""Doc."""\nfrom __future__ import annotations\nimport torch\n', "import torch\nimport torch_{to}\n"),
        ("import torch, os  # both\n", "import torch, os  # both\nimport torch_{to}\n"),
        ("from torch import (\n    nn,\n)\nimport torch\n", "    nn,\n)\nimport torch_{to}\n"),
    ],
)
def test_a_device_in_another_file_brings_the_import_behind_torch(
    tmp_path: Path, head: str, expected: str, to: str
) -> None:
    files = {"train.py": f"{head}from config import DEVICE\n{USES}", "config.py": 'DEVICE = "cuda"\n'}
    outcome = migrate(tmp_path, files, to)
    assert expected.replace("{to}", to) in texts(outcome)["train.py"]
    assert summarise(outcome).verdict == "complete"
    file = outcome.by_path["train.py"]
    assert len(file.original_lines) == len(lines_of(file.new_text))


def test_a_device_in_a_configuration_file_brings_the_import(tmp_path: Path) -> None:
    train = "import torch\ndef main(cfg):\n    return torch.ones(2).to(cfg.device)\n"
    found = texts(migrate(tmp_path, {"train.py": train, "conf/base.yaml": "device: cuda\n"}))
    assert found["train.py"].startswith("import torch\nimport torch_npu\n")


def test_a_script_that_leaves_torch_to_others_gets_the_import(tmp_path: Path) -> None:
    files = {
        "main.py": "from __future__ import annotations\nimport sys\nfrom engine import run\nrun(sys.argv)\n",
        "engine.py": "import torch\nimport config\ndef run(args):\n    return torch.ones(2).to(config.DEVICE)\n",
        "config.py": 'DEVICE = "cuda"\n',
    }
    assert "import sys\nimport torch_npu\n" in texts(migrate(tmp_path, files))["main.py"]


def test_each_script_is_requested_itself(tmp_path: Path) -> None:
    """A demo script in the same project imports the plug-in, which does not help the training script."""
    shared = {
        "config.py": 'DEVICE = "cuda"\n',
        "util.py": "import torch\ndef move(x, device):\n    return x.to(device)\n",
    }
    train = "import torch\nfrom config import DEVICE\nfrom util import move\nmove(torch.ones(2), DEVICE)\n"
    demo = "import torch\nfrom util import move\nmove(torch.ones(2).cuda(), 'cpu')\n"
    found = texts(migrate(tmp_path, {**shared, "train.py": train, "demo.py": demo}))
    assert found["train.py"].count("import torch_npu") == found["demo.py"].count("import torch_npu") == 1


def test_a_second_run_is_still(tmp_path: Path) -> None:
    files = {"train.py": f"import torch\nfrom config import DEVICE\n{USES}", "config.py": 'DEVICE = "cuda"\n'}
    first = texts(migrate(tmp_path, files))
    (tmp_path / "again").mkdir()
    assert texts(migrate(tmp_path / "again", {**files, **first})) == {}


def test_a_library_on_torch_is_enough_to_stand_behind(tmp_path: Path) -> None:
    text = "from transformers import AutoModel\nnet = AutoModel.from_pretrained('x').to('cuda')\n"
    outcome = migrate(tmp_path, {"infer.py": text})
    assert texts(outcome)["infer.py"].startswith("from transformers import AutoModel\nimport torch_npu\n")
    assert summarise(outcome).verdict == "complete"


@pytest.mark.parametrize("line", ["# torch_npu is needed", "print('install torch_npu first')"])
def test_a_mention_of_the_plugin_is_no_import(tmp_path: Path, line: str) -> None:
    files = {"train.py": f"import torch\n{line}\nfrom config import DEVICE\n{USES}", "config.py": 'DEVICE = "npu"\n'}
    assert texts(migrate(tmp_path, files))["train.py"].startswith("import torch\nimport torch_npu\n")


@pytest.mark.parametrize(
    "line",
    [
        "from torch_npu.contrib import transfer_to_npu",
        "importlib.import_module('torch_npu')",
        "exec('import torch_npu')",
    ],
)
def test_an_import_of_the_plugin_in_another_form_is_enough(tmp_path: Path, line: str) -> None:
    files = {"train.py": f"import torch\n{line}\nfrom config import DEVICE\n{USES}", "config.py": 'DEVICE = "npu"\n'}
    assert "train.py" not in texts(migrate(tmp_path, files))
