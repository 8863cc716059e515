"""Facts about the accelerators: each is written in one file, and the packages that need it read it from there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import viaduct
from viaduct.cards import BACKENDS, CARDS, CUDA, MLU, NPU, PLUGINS
from viaduct.cards.npu import RANK_SOURCE

SOURCE = Path(viaduct.__file__).parent
COPIED = "migration/accelerator_device.py"  # is copied into migrated projects and can import nothing
STAND_IN = "rehearsal/tf1_stage/site/"  # is the package of that name


def spelled_in(text: str) -> set[str]:
    """Return the source files with a string constant that is exactly this text."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value == text:
                found.add(path.relative_to(SOURCE).as_posix())
    return {path for path in found if path != COPIED and not path.startswith(STAND_IN)}


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_the_backend_is_spelled_in_the_cards_file_alone(card: object) -> None:
    assert spelled_in(card.backend) == {f"cards/{card.name}.py"}


def test_the_npus_names_are_spelled_in_its_file_alone() -> None:
    assert spelled_in(NPU.visible) == {"cards/npu.py"}
    assert spelled_in("npu-smi info") == {"cards/npu.py"}
    for name in (NPU.interface, NPU.device_choice, NPU.rank_table, NPU.world_group, *NPU.patches, "npu_bridge"):
        assert spelled_in(name) == {"cards/npu.py"}, name


def test_the_mlus_names_are_spelled_in_its_file_alone() -> None:
    for name in (MLU.module, *MLU.patches):
        assert spelled_in(name) == {"cards/mlu.py"}, name


def test_the_helper_that_is_copied_agrees_with_the_cards() -> None:
    text = (SOURCE / COPIED).read_text(encoding="utf-8")
    assert f"for plugin in {PLUGINS}:".replace("'", '"') in text
    assert f"TYPES = {tuple(BACKENDS)} ".replace("'", '"') in text
    assert f"BACKENDS = {tuple(BACKENDS.values())} ".replace("'", '"') in text


def test_ranks_are_asked_of_the_collective_library_by_default() -> None:
    assert NPU.backend == RANK_SOURCE


def test_names_that_follow_from_the_device_type() -> None:
    assert (NPU.root, NPU.package, NPU.is_attr) == ("torch.npu", "torch_npu.npu", "is_npu")
    assert (MLU.root, MLU.package, MLU.is_attr) == ("torch.mlu", "torch_mlu.mlu", "is_mlu")


def test_every_card_has_a_backend_of_its_own() -> None:
    assert sorted(BACKENDS) == ["cuda", "mlu", "npu"]
    assert len(set(BACKENDS.values())) == 3


def test_only_the_npus_list_of_devices_must_ascend() -> None:
    assert [card.name for card in (CUDA, NPU, MLU) if card.ascending] == ["npu"]


def test_reading_the_cards_imports_no_framework() -> None:
    modules = ", ".join(f"viaduct.cards.{path.stem}" for path in (SOURCE / "cards").glob("[a-z]*.py"))
    code = f"import sys, {modules}; sys.exit(bool({{'torch', 'tensorflow', 'numpy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
