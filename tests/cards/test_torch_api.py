"""Names of torch.cuda and their counterparts."""

from __future__ import annotations

import importlib

import pytest

from viaduct.cards import CARDS
from viaduct.cards.torch_api import (
    MORE_NAMES,
    NAMES_MISSING_ON_A_CARD,
    NPU_AND_MLU_NAMES,
    RENAMED_NAMES,
    SUBMODULES,
    find_counterpart,
)


@pytest.mark.parametrize("name", ["jiterator", "get_arch_list", "DoubleTensor", "comm.broadcast", "sparse.FloatTensor"])
def test_a_name_in_no_table_has_no_counterpart(name: str) -> None:
    assert find_counterpart(name, CARDS["npu"]) is None


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("nvtx.range_push", "cnpx.range_push"),
        ("CUDAGraph", "MLUGraph"),
        ("nccl.version", "cncl.version"),
        ("nccl.all_reduce", None),
        ("amp.autocast_mode.autocast", "amp.autocast_mode.autocast"),
        ("amp.something", None),
        ("FloatTensor.type", "FloatTensor.type"),
    ],
)
def test_counterparts_on_the_mlu(name: str, new: str | None) -> None:
    assert find_counterpart(name, CARDS["mlu"]) == new


def test_every_name_in_the_tables_is_one_of_torch_cuda() -> None:
    torch = pytest.importorskip("torch")
    cards = [*MORE_NAMES.values(), *(set(names) for names in RENAMED_NAMES.values())]
    missing = {
        name
        for names in (NPU_AND_MLU_NAMES, NAMES_MISSING_ON_A_CARD, *cards)
        for name in names
        if not hasattr(torch.cuda, name)
    }
    assert missing <= {"comm", "cutlass"}, "comm is imported when asked for; cutlass is a package beside torch"
    for module, names in SUBMODULES.items():
        cuda_module = importlib.import_module(f"torch.cuda.{module}")
        assert [name for name in names if not hasattr(cuda_module, name)] == []
