"""Places that a requirement concerns, found independently of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migration.small_project import migrated_project
from viaduct.migration.summary import Summary, summarise


def summary_of(folder: Path, text: str, **options: Any) -> Summary:
    (folder / "train.py").write_text(text)
    return summarise(migrated_project(folder, **options))


def counts(summary: Summary, requirement: str) -> tuple[int, ...]:
    """Return needed, changed, right, manual, unresolved."""
    for row in summary.ledger:
        if row.requirement == requirement:
            return (row.needed, row.changed, row.right, row.manual, row.unresolved)
    return (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "import requests\nimport tensorflow as tf\nrequests.Session()\n",
        "import tensorflow as tf\nclass A:\n    def batch(self, n):\n        return n\ndef go(x):\n    x.batch(3)\n",
        "import torch\nprint('cuda')\n",
        "import torch\nname = {'cuda': 1}\n",
        "import torch\ndef go(state):\n    return 'cuda' in state\n",
        "x = 'cuda'\n",
    ],
)
def test_what_is_no_place_is_not_counted(tmp_path: Path, text: str) -> None:
    assert summary_of(tmp_path, text).verdict == "nothing to change"


def test_thousands_of_places_in_one_file_are_counted_once_each(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2)\n" + "x = x.cuda()\n" * 500
    assert counts(summary_of(tmp_path, text), "moves") == (500, 500, 0, 0, 0)


def test_the_helper_in_a_notebooks_cell_is_no_place_of_the_script(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["import torch\n", "x = torch.ones(2).cuda()\n"], "metadata": {}}]
    for cell in cells:
        cell |= {"outputs": [], "execution_count": None}
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
    (tmp_path / "try.ipynb").write_text(json.dumps(notebook, indent=1) + "\n")
    outcome = migrated_project(tmp_path, to="any")
    assert outcome.changed_files
    summary = summarise(outcome)
    assert counts(summary, "moves") == (1, 1, 0, 0, 0)
    assert summary.verdict == "complete"
