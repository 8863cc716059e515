"""Names of the NPU."""

from __future__ import annotations

from cards.spelling import spelled_in
from viaduct.cards import NPU
from viaduct.cards.npu import DEFAULT_RANK_SOURCE


def test_the_npus_names_are_spelled_in_its_file_alone() -> None:
    assert spelled_in(NPU.visible_variable) == {"cards/npu.py"}
    assert spelled_in("npu-smi info") == {"cards/npu.py"}
    for name in (
        NPU.interface_variable,
        NPU.device_variable,
        NPU.rank_table_variable,
        NPU.world_group,
        *NPU.patch_modules,
        "npu_bridge",
    ):
        assert spelled_in(name) == {"cards/npu.py"}, name


def test_ranks_are_asked_of_the_collective_library_by_default() -> None:
    assert NPU.backend == DEFAULT_RANK_SOURCE
