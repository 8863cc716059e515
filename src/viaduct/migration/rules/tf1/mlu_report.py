"""Report functions that work with NVIDIA GPUs only (NCCL, TensorRT), and functions that list or test for GPUs."""

from __future__ import annotations

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._device_counts import counts_devices

rule = Rule(
    __name__,
    target_needs="tensorflow_functions",
    spec_rows=("6.1",),
    category="report",
    targets=("mlu",),
    runs_last=True,
)

ONLY_NVIDIA = ("tensorflow.contrib.nccl.*", "tensorflow.contrib.tensorrt.*", "tensorflow.distribute.NcclAllReduce")
GPU_TESTS = (
    "tensorflow.test.is_gpu_available", "tensorflow.test.gpu_device_name", "tensorflow.test.is_built_with_cuda",
    "tensorflow.config.experimental.list_physical_devices", "tensorflow.config.list_physical_devices",
    "tensorflow.python.client.device_lib.list_local_devices",
)  # fmt: skip


@rule.call(*ONLY_NVIDIA)
def report_nvidia(site: Site) -> None:
    short = site.name.removeprefix("tensorflow.")
    site.request_review(
        f"tf.{short} works with NVIDIA cards only: use Horovod, which Cambricon's TensorFlow supports, or remove it",
        zh=f"tf.{short} 仅支持 NVIDIA 设备:请使用寒武纪 TensorFlow 支持的 Horovod,或删除",
        risk="high",
    )


@rule.call(*GPU_TESTS)
def report_gpu_test(site: Site) -> None:
    """Report a test for GPUs: for manual review if the script counts them, else as advice."""
    short = site.name.removeprefix("tensorflow.")
    report = site.request_review if counts_devices(site) else site.advise
    report(
        f"if tf.{short} looks for GPUs here, look for MLUs instead, or check the branches that depend on it",
        zh=f"若此处 tf.{short} 查询的是 GPU:请改为查询 MLU,或检查后续分支",
        risk="medium",
    )
