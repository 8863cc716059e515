"""CUDA code in projects without PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project


def migrate_files(folder: Path, files: dict[str, str], to: str = "npu", **options: object) -> Outcome:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return migrate_project(folder, Options(to=to, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x.cuda()\n",
        "y = x.to('cuda')\n",
        "net = make(device='cuda:0')\n",
        "y = x.to('cuda')  # a tensor of pytorch\n",
    ],
)
def test_cuda_code_without_any_pytorch_is_reported(tmp_path: Path, text: str) -> None:
    outcome = migrate_files(tmp_path, {"tools.py": f'"""Not tensorflow."""\n{text}'})
    assert [(finding.rule, finding.status) for finding in outcome.findings] == [("torch.unknown_program", "unresolved")]
    assert not outcome.changed_files
