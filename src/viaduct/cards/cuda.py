"""NVIDIA GPU: the device for which the scripts to migrate were written."""

from __future__ import annotations

from viaduct.cards.card import Card

CARD = Card(
    name="cuda",
    title="GPU",
    vendor="NVIDIA",
    backend="nccl",
    visible="CUDA_VISIBLE_DEVICES",
    hiding=("CUDA_VISIBLE_DEVICES",),
    interface="NCCL_SOCKET_IFNAME",
    software="CUDA",
    tool="nvidia-smi",
    device_files="nvidia[0-9]*",
    resource="nvidia.com/gpu",
    activity="CUDA",
    graph="CUDAGraph",
    marks="nvtx",
    dtypes=("float16", "bfloat16", "float32", "float64"),
)
