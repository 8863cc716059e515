from __future__ import annotations

from viaduct.cards import CUDA, MLU, NPU
from viaduct.cards.shell import ENVIRONMENTS, MOUNTS, TF_PLUGIN


def test_the_environment_names_the_variable_that_lists_the_cards() -> None:
    for card in (CUDA, NPU, MLU):
        assert f"# export {card.visible_variable}=" in ENVIRONMENTS[card.name]


def test_a_container_gets_the_device_files_of_its_card() -> None:
    for card in (NPU, MLU):
        assert f"/dev/{card.device_files}" in MOUNTS[card.name]
        assert card.monitor_command.partition(" ")[0] in MOUNTS[card.name]


def test_the_adapter_is_set_up_behind_the_environment() -> None:
    assert all(module in TF_PLUGIN for module in NPU.tensorflow_modules)
