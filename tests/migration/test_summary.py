"""The summary of a migration, and when it may say complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from migration.small_project import migrated_project
from viaduct.migration.summary import Summary, headline, summarise


def summary_of(folder: Path, text: str, **options: Any) -> Summary:
    (folder / "train.py").write_text(text)
    return summarise(migrated_project(folder, **options))


def counts(summary: Summary, requirement: str) -> tuple[int, ...]:
    """Return needed, changed, right, manual, unresolved."""
    for row in summary.ledger:
        if row.requirement == requirement:
            return (row.needed, row.changed, row.right, row.manual, row.unresolved)
    return (0, 0, 0, 0, 0)


def test_complete_is_reported_where_all_places_are_changed_or_right(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2).cuda()\ny = torch.zeros(2, device='cuda')\ntorch.cuda.synchronize()\n"
    summary = summary_of(tmp_path, text)
    assert summary.verdict == "complete"
    assert counts(summary, "moves") == (1, 1, 0, 0, 0)
    assert counts(summary, "device_strings") == (1, 1, 0, 0, 0)
    assert counts(summary, "device_calls") == (1, 1, 0, 0, 0)


def migrate_files(folder: Path, files: dict[str, str], **options: Any) -> Summary:
    for path, text in files.items():
        (folder / path).write_text(text)
    return summarise(migrated_project(folder, **options))


def test_what_was_right_is_not_reported_to_be_written_by_the_migration(tmp_path: Path) -> None:
    """The unused load was right while its file named no card, and its text has not changed."""
    store = (
        "import torch\nclass Store:\n    @property\n    def net(self):\n        return torch.load(self.path)\n"
        "def read(path):\n    return torch.load(path)['x']\n"
    )
    main = "import torch\nfrom store import Store\nx = torch.ones(2).cuda()\nStore('a').net.eval()(x)\n"
    summary = migrate_files(tmp_path, {"store.py": store, "main.py": main})
    assert counts(summary, "checkpoints") == (2, 1, 1, 0, 0)


def test_a_run_time_patch_is_never_called_complete(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "import torch\nx = torch.ones(2).cuda()\n", mode="patch")
    assert summary.verdict == "incomplete"
    assert "was not checked" in summary.reasons[0]


def test_excluded_files_are_reported_beside_the_verdict(tmp_path: Path) -> None:
    files = {"train.py": "import torch\nx = torch.ones(2)\n", "old.py": "import torch\nx = torch.ones(2).cuda()\n"}
    summary = migrate_files(tmp_path, files, exclude=("old.py",))
    assert headline(summary).startswith("nothing to change: 1 file excluded; ")


def test_known_packages_and_own_modules_are_not_named_as_unanalysed(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    files = {
        "train.py": "import os, torch\nimport numpy as np\nfrom PIL import Image\nfrom torchvision import models\n"
        "import torch_npu, nvidia.dali\nfrom nets import vgg\nfrom helper import make\n",
        "helper.py": "from tqdm import tqdm\n",
        "nets/__init__.py": "",
        "nets/vgg.py": "import torch\nfrom .parts import Block\nfrom ..helper import make\n",
        "nets/parts.py": "from torch import nn\nclass Block(nn.Module):\n    pass\n",
    }
    assert not [reason for reason in migrate_files(tmp_path, files).reasons if "imported packages" in reason]


def test_packages_that_were_not_analysed_are_named_beside_the_verdict(tmp_path: Path) -> None:
    text = "from homura.trainers import SupervisedTrainer\nimport chika as config\nimport espnet\n"
    summary = migrate_files(tmp_path, {"train.py": text, "plain.py": "import mytrainer.loop\n"})
    assert summary.verdict == "nothing to change"
    assert summary.reasons[0] == "the code of imported packages was not analysed: chika, espnet, homura, mytrainer"
