"""Trainers of Lightning, which has no accelerator for the cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from migration.checking import check_noop, check_says
from migration.small_project import migrated_project
from viaduct.migration.options import Options
from viaduct.migration.settings import migrate
from viaduct.migration.summary import summarise

IMPORTS = ["import pytorch_lightning as pl", "import lightning as pl", "from lightning import pytorch as pl"]


@pytest.mark.parametrize(
    "source",
    [
        "import pytorch_lightning as pl\npl.Trainer(accelerator='cpu', devices=2)\n",
        "from pytorch_lightning import Trainer\nTrainer(max_epochs=1, accelerator='tpu')\n",
        "import pytorch_lightning as pl\npl.Trainer(accelerator='npu')\n",
        "import pytorch_lightning as pl\nfrom cards import NPUAccelerator\npl.Trainer(accelerator=NPUAccelerator())\n",
        "import pytorch_lightning as pl\ncard = NPUAccelerator()\npl.Trainer(accelerator=card)\n",
        "from mylib import Trainer\nTrainer(accelerator='gpu')\n",
        "from transformers import Trainer\nTrainer(model=net)\n",
        "import pytorch_lightning as pl\npl.seed_everything(1)\n",
    ],
)
def test_a_trainer_that_needs_no_cuda_is_left_alone(source: str) -> None:
    check_noop("lightning", source)


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
@pytest.mark.parametrize("imported", IMPORTS)
@pytest.mark.parametrize(
    "call",
    [
        "pl.Trainer(accelerator='gpu', devices=8, strategy='ddp')",
        "pl.Trainer(gpus=8, accelerator='ddp')",
        "pl.Trainer(accelerator='auto')",
        "pl.Trainer(max_epochs=3)",
        "pl.Trainer(**settings)",
        "pl.Trainer(accelerator=args.accelerator)",
        "pl.Trainer.from_argparse_args(args)",
    ],
)
def test_a_trainer_on_cuda_or_auto_needs_review(imported: str, call: str, to: str) -> None:
    check_says("lightning", f"{imported}\n{call}\n", "manual", "Lightning has no accelerator", to=to)


@pytest.mark.parametrize("call", ["Fabric('cuda', 2)", "Fabric(accelerator='cuda')", "Fabric()"])
def test_fabric_needs_review_too(call: str) -> None:
    check_says("lightning", f"from lightning.fabric import Fabric\nfabric = {call}\n", "manual", "Accelerator")


def test_a_project_of_lightning_is_never_called_complete(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from pytorch_lightning import Trainer\nTrainer().fit(net)\n")
    assert summarise(migrated_project(tmp_path)).verdict == "incomplete"


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_the_accelerator_of_a_configuration_file_needs_review_and_the_rest_is_written(to: str) -> None:
    made = migrate("conf.yaml", b"device: cuda\ntrainer:\n  accelerator: gpu\n", Options(to=to))  # type: ignore[arg-type]
    assert [finding.line for finding in made.findings if finding.rule == "torch.lightning"] == [3]
    assert made.after == (b"device: cuda\n" if to == "any" else f"device: {to}\n".encode()) + made.before[13:]
