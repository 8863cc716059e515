"""Ascend NPU (Huawei): CANN, torch_npu, and the npu_bridge adapter for TensorFlow 1."""

from __future__ import annotations

from typing import Literal

from viaduct.cards.card import Card

RankSource = Literal["hccl", "env"]
"""Source of rank and size in a TensorFlow 1 script: the collective library, or the environment."""
DEFAULT_RANK_SOURCE: RankSource = "hccl"
"""Default of `viaduct migrate`."""

CARD = Card(
    name="npu",
    title="NPU",
    vendor="Ascend",
    backend="hccl",
    visible="ASCEND_RT_VISIBLE_DEVICES",
    hiding=("ASCEND_RT_VISIBLE_DEVICES",),
    interface="HCCL_SOCKET_IFNAME",
    device_choice="ASCEND_DEVICE_ID",
    rank_table="RANK_TABLE_FILE",
    world_group="hccl_world_group",
    module="torch_npu",
    patches=("torch_npu.contrib.transfer_to_npu",),
    software="CANN",
    tool="npu-smi info",
    device_files="davinci[0-9]*",
    resource="huawei.com/Ascend910",
    activity="NPU",
    graph="NPUGraph",
    marks="mstx",
    tensorflow_modules=("npu_bridge", "hccl"),
    dtypes=("float16", "bfloat16", "float32"),  # bfloat16 since the 910B of 2023
    # Pages "allreduce" and "broadcast" of "TF Adapter 1.x" (hiascend.com, CANN 5.0 to 9.0): union of all models.
    reduced_dtypes=("int8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"),
    exchanged_dtypes=(
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "bfloat16", "float32", "float64"),
    ),
    ascending=True,
)
