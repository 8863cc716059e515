"""Cambricon MLU: CNToolkit and torch_mlu. For TensorFlow 1 Cambricon ships a modified TensorFlow, not an add-on."""

from __future__ import annotations

from viaduct.cards.card import Card, VersionFile

CARD = Card(
    name="mlu",
    title="MLU",
    vendor="Cambricon",
    backend="cncl",
    visible_variable="MLU_VISIBLE_DEVICES",
    visible_variables=("CN_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    plugin="torch_mlu",
    patch_modules=("torch_mlu.utils.gpu_migration", "torch_mlu.utils.model_transfer"),
    software="CNToolkit",
    toolkit_version=VersionFile(
        "version.txt", r"(\d+\.\d+\.\d+)", folders=("/usr/local/neuware",), variables=("NEUWARE_HOME",)
    ),
    driver_version=VersionFile("proc/driver/cambricon/mlus/*/information", r"^driver version\s*:\s*v?(.+)$"),
    oldest_driver="4.20.6",
    repair_hint="Put $NEUWARE_HOME/lib64 on LD_LIBRARY_PATH",
    monitor_command="cnmon",
    device_files="cambricon_dev[0-9]*",
    kubernetes_resource="cambricon.com/mlu",
    profiler_activity="MLU",
    graph_class="MLUGraph",
    range_module="cnpx",
    dtypes=("float16", "bfloat16", "float32"),  # bfloat16 since the MLU590; the MLU370 lacks it
)
