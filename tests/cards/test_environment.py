from __future__ import annotations

import pytest

from viaduct.cards import MLU, NPU
from viaduct.cards.environment import (
    describe_cuda_variable,
    describe_nccl_variable_for_all,
    explain_refused_devices,
    is_valid_device_list,
)


@pytest.mark.parametrize("listed", ["0", "0,1", "0, 2, 3", "", "-1"])
def test_an_ascending_list_of_devices_is_kept_on_every_card(listed: str) -> None:
    assert is_valid_device_list(listed, NPU)
    assert is_valid_device_list(listed, MLU)


def test_a_list_out_of_order_is_kept_on_the_mlu_alone() -> None:
    assert is_valid_device_list("1,0", MLU)
    assert not is_valid_device_list("1,0", NPU)
    assert "strictly ascending" in explain_refused_devices("1,0", NPU)[0]


def test_names_of_gpus_mean_nothing_elsewhere() -> None:
    assert not is_valid_device_list("GPU-5f3e", MLU)
    assert "not names of GPUs" in explain_refused_devices("GPU-5f3e", MLU)[0]


def test_a_variable_is_named_with_its_counterpart_where_there_is_one() -> None:
    assert "ASCEND_LAUNCH_BLOCKING" in describe_cuda_variable("CUDA_LAUNCH_BLOCKING", NPU)[0]
    assert describe_cuda_variable("CUDA_LAUNCH_BLOCKING", MLU)[0].endswith("has no effect on the MLU")


def test_a_variable_of_nccl_is_explained_for_both_cards_in_both_languages() -> None:
    english, chinese = describe_nccl_variable_for_all("NCCL_DEBUG")
    assert "HCCL_CONNECT_TIMEOUT" in english
    assert "CNCL_BLOCKING_WAIT" in chinese
