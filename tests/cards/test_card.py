"""Facts about the accelerators: each is written in one file, and the packages that need it read it from there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cards.spelling import COPIED, SOURCE, spelled_in
from viaduct.cards import BACKENDS, CARDS, CUDA, MLU, NPU, PLUGINS


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_the_backend_is_spelled_in_the_cards_file_alone(card: object) -> None:
    assert spelled_in(card.backend) == {f"cards/{card.name}.py"}


def test_the_helper_that_is_copied_agrees_with_the_cards() -> None:
    text = (SOURCE / COPIED).read_text(encoding="utf-8")
    assert f"for plugin in {PLUGINS}:".replace("'", '"') in text
    assert f"TYPES = {tuple(BACKENDS)} ".replace("'", '"') in text
    assert f"BACKENDS = {tuple(BACKENDS.values())} ".replace("'", '"') in text


def test_names_that_follow_from_the_device_type() -> None:
    assert (NPU.torch_module, NPU.plugin_module, NPU.tensor_flag) == ("torch.npu", "torch_npu.npu", "is_npu")
    assert (MLU.torch_module, MLU.plugin_module, MLU.tensor_flag) == ("torch.mlu", "torch_mlu.mlu", "is_mlu")


def test_every_card_has_a_backend_of_its_own() -> None:
    assert sorted(BACKENDS) == ["cuda", "mlu", "npu"]
    assert len(set(BACKENDS.values())) == 3


def test_only_the_npus_list_of_devices_must_ascend() -> None:
    assert [card.name for card in (CUDA, NPU, MLU) if card.needs_ascending_devices] == ["npu"]


def test_reading_the_cards_imports_no_framework() -> None:
    modules = ", ".join(f"viaduct.cards.{path.stem}" for path in (SOURCE / "cards").glob("[a-z]*.py"))
    code = f"import sys, {modules}; sys.exit(bool({{'torch', 'tensorflow', 'numpy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
