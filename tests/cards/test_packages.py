"""Packages made for NVIDIA cards."""

from __future__ import annotations

import pytest

from viaduct.cards import packages
from viaduct.cards.packages import (
    NO_REPLACEMENT,
    PACKAGES,
    describe_package,
    find_package_of_distribution,
    find_package_of_import,
)


def test_spellings_of_a_distribution() -> None:
    assert find_package_of_distribution("Flash_Attn") is find_package_of_import("flash_attn.bert_padding")
    assert find_package_of_distribution("nvidia-cublas-cu12") is not None
    assert find_package_of_distribution("nvidia-modelopt") is None
    assert find_package_of_distribution("torch") is None
    assert all(package.npu == NO_REPLACEMENT or package.npu[1] for package in PACKAGES)


@pytest.mark.parametrize("name", ["numba", "nvidia", "tritonclient", "numpy.cupy", ""])
def test_a_module_that_shares_only_a_part_of_its_name_is_no_package_for_nvidia(name: str) -> None:
    assert find_package_of_import(name) is None


def test_a_module_belongs_to_the_package_with_the_longest_prefix_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("numba.cuda.jit", "numba.cuda"), ("nvidia.dali.fn", "NVIDIA DALI"), ("cuda.nvrtc", "CUDA")):
        found = find_package_of_import(name)
        assert found is not None
        assert found.name.startswith(package)
    outer, inner = PACKAGES[:2]
    monkeypatch.setattr(packages, "map_packages_by_import", lambda: {"a": outer, "a.b": inner})
    assert find_package_of_import("a.b.c") is inner
    assert find_package_of_import("a.c") is outer


def test_a_package_that_supports_the_card_is_only_partly_for_nvidia() -> None:
    package = find_package_of_import("deepspeed")
    assert package is not None
    english, _ = describe_package(package, "npu")
    assert english.startswith("deepspeed has parts for NVIDIA cards (distributed training); on the NPU: supported")


def test_the_sentence_names_what_the_user_wrote_and_only_the_target_card() -> None:
    package = find_package_of_import("pynvml")
    assert package is not None
    english, chinese = describe_package(package, "npu", "GPUtil")
    assert english == "GPUtil is for NVIDIA cards (asks NVIDIA's driver); on the NPU: the tool `npu-smi info`"
    assert "GPUtil" in chinese
    assert "NPU 上" in chinese
    assert "cnmon" not in english + chinese
    for text in describe_package(package, "any"):
        assert "npu-smi" in text
        assert "cnmon" in text
