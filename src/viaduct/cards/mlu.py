"""Cambricon MLU: CNToolkit and torch_mlu. For TensorFlow 1 the vendor has its own build instead of an adapter."""

from __future__ import annotations

from viaduct.cards.card import Card

CARD = Card(
    name="mlu",
    title="MLU",
    vendor="Cambricon",
    backend="cncl",
    visible="MLU_VISIBLE_DEVICES",
    hiding=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    module="torch_mlu",
    patches=("torch_mlu.utils.gpu_migration", "torch_mlu.utils.model_transfer"),
    software="CNToolkit",
    tool="cnmon",
    device_files="cambricon_dev[0-9]*",
    resource="cambricon.com/mlu",
    activity="MLU",
    graph="MLUGraph",
    marks="cnpx",
    dtypes=("float16", "bfloat16", "float32"),
)
