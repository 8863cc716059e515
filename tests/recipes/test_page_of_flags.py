"""docs/flags.md names fields, flags, batches and rates that the recipes have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.recipes import load, names
from viaduct.recipes._fields import list_field_paths

PAGE = (Path(__file__).parents[2] / "docs" / "flags.md").read_text()


def sections() -> dict[str, list[str]]:
    """Recipe -> the last cells of the rows of its table in docs/flags.md."""
    found: dict[str, list[str]] = {}
    for part in PAGE.split("\n## ")[1:]:
        recipe = part.split(":")[0]
        if recipe in names():
            rows = [line.split("|")[-2].strip() for line in part.splitlines() if line.startswith("|")]
            found[recipe] = rows[2:]
    return found


def test_every_reference_has_its_table_of_flags() -> None:
    published = {"resnet50_imagenet", "resnet50_v15_imagenet", "resnext50_imagenet", "amoebanet_d_imagenet"}
    assert published | {"resnet50_thor_imagenet"} <= set(sections())
    assert all(len(rows) >= 9 for rows in sections().values())


@pytest.mark.parametrize("name", sections())
def test_every_field_in_the_page_of_flags_exists(name: str) -> None:
    known = list_field_paths(load(name).recipe)
    words = [flag for cell in sections()[name] for flag in re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)*)`", cell)]
    words = [flag for flag in words if flag not in names() and flag not in ("start", "recipe.json")]
    assert len(words) >= 7
    assert [flag for flag in words if flag not in known] == []


def test_every_flag_in_the_page_of_flags_exists() -> None:
    flags = set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--set"}
    assert len(flags) > 15
    shown = ""
    for verb in ("train", "migrate", "launch"):
        command = [sys.executable, "-m", "viaduct", verb, "--help"]
        shown += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [flag for flag in sorted(flags) if flag not in shown] == []


def test_the_batches_and_rates_in_the_page_of_flags_are_those_of_the_recipes() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (\d+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    for name, batch, rate in rows:
        recipe = load(name).recipe
        assert (recipe.data.global_batch, recipe.optimizer.lr) == (int(batch), float(rate))
