"""Options that are refused before any file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct


@pytest.mark.parametrize(
    ("to", "flag"),
    [
        *(("mlu", "--int32-targets"), ("any", "--start-up"), ("mlu", "--start-up")),
        *(("mlu", "--reduction sum"), ("mlu", "--fusion-switch off.cfg")),
    ],
)
def test_flags_of_the_npu_are_refused_for_others(tmp_path: Path, to: str, flag: str) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    result = viaduct("migrate", str(tmp_path), "--to", to, "--distributed", *flag.split())
    assert result.returncode == 2
    assert f"--to {to} with {flag.removesuffix(' off.cfg')}" in result.stderr
