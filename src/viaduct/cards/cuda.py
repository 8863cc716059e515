"""NVIDIA GPU. Its names are those that scripts contain before their migration."""

from __future__ import annotations

from viaduct.cards.card import Card, VersionFile

CARD = Card(
    name="cuda",
    title="GPU",
    vendor="NVIDIA",
    backend="nccl",
    visible_variable="CUDA_VISIBLE_DEVICES",
    visible_variables=("CUDA_VISIBLE_DEVICES",),
    interface_variable="NCCL_SOCKET_IFNAME",
    software="CUDA",
    driver_version=VersionFile("proc/driver/nvidia/version", r"\b(\d{3,}\.\d+(?:\.\d+)?)\b"),
    monitor_command="nvidia-smi",
    device_files="nvidia[0-9]*",
    kubernetes_resource="nvidia.com/gpu",
    profiler_activity="CUDA",
    graph_class="CUDAGraph",
    range_module="nvtx",
    dtypes=("float16", "bfloat16", "float32", "float64"),
)
