"""Ascend NPU (Huawei): CANN, torch_npu, and the npu_bridge adapter for TensorFlow 1."""

from __future__ import annotations

from typing import Literal

from viaduct.cards.card import Card, VersionFile

# Where a TensorFlow 1 script reads its rank and the number of ranks: HCCL's functions, or environment variables.
RankSource = Literal["hccl", "env"]
DEFAULT_RANK_SOURCE: RankSource = "hccl"  # default of the flag `viaduct migrate --rank`

CARD = Card(
    name="npu",
    title="NPU",
    vendor="Ascend",
    backend="hccl",
    visible_variable="ASCEND_RT_VISIBLE_DEVICES",
    visible_variables=("ASCEND_RT_VISIBLE_DEVICES",),
    interface_variable="HCCL_SOCKET_IFNAME",
    device_variable="ASCEND_DEVICE_ID",
    rank_table_variable="RANK_TABLE_FILE",
    world_group="hccl_world_group",
    plugin="torch_npu",
    patch_modules=("torch_npu.contrib.transfer_to_npu",),
    software="CANN",
    toolkit_version=VersionFile(
        "{machine}-linux/ascend_toolkit_install.info",
        r"^version=(.+)$",
        folders=("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann"),
        variables=("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"),
    ),
    driver_version=VersionFile("usr/local/Ascend/driver/version.info", r"^version=(.+)$"),
    repair_hint="Source CANN's set_env.sh",
    monitor_command="npu-smi info",
    device_files="davinci[0-9]*",
    kubernetes_resource="huawei.com/Ascend910",
    profiler_activity="NPU",
    graph_class="NPUGraph",
    range_module="mstx",
    tensorflow_modules=("npu_bridge", "hccl"),
    dtypes=("float16", "bfloat16", "float32"),  # bfloat16 since the 910B of 2023; the 910 lacks it
    # From the pages "allreduce" and "broadcast" of "TF Adapter 1.x" (hiascend.com, CANN 5.0 to 9.0): the types that at
    # least one model accepts.
    reduced_dtypes=("int8", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"),
    exchanged_dtypes=(
        "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float16", "bfloat16", "float32", "float64",
    ),
    needs_ascending_devices=True,
)  # fmt: skip
