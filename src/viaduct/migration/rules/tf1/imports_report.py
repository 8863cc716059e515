"""Report imports of packages that work with NVIDIA cards only, or use MPI.

cupy, cupyx, pycuda, pynvml, nvidia.dali and TensorRT have no counterpart. mpi4py is not needed on the NPU, where ranks
come from the rank table; on the MLU it is not reported, since Horovod stays there.
"""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.migration.lookups import imported_names
from viaduct.migration.rule import ALL_CARDS, Rule, Site

rule = Rule(
    __name__,
    target_needs="tensorflow_functions",
    spec_rows=("I4",),
    category="report",
    targets=ALL_CARDS,
    runs_last=True,
)

TENSORRT = ("tensorrt", "tensorflow.python.compiler.tensorrt", "tensorflow.contrib.tensorrt")
ALTERNATIVES = {
    **dict.fromkeys(("cupy", "cupyx"), ("use numpy on the host for its arrays", "GPU 数组库:请在 host 侧使用 numpy")),
    **dict.fromkeys(TENSORRT, ("TensorRT is NVIDIA's inference engine", "TensorRT 是 NVIDIA 的推理引擎")),
    "pycuda": ("it runs CUDA kernels; use TensorFlow's operators", "运行 CUDA 核函数:请使用 TensorFlow 算子"),
    "pynvml": ("it queries NVIDIA's driver; use the accelerator's own tools", "查询 NVIDIA 驱动:请使用加速卡自带工具"),
    "nvidia.dali": ("read and decode with tf.data instead", "在 GPU 上读取与解码:请使用 tf.data"),
    "mpi4py": (f"ranks come from the rank table and {NPU.backend}", f"rank 由 rank table 与 {NPU.backend} 提供"),
}
PACKAGE_TEXTS = ("cupy", "pynvml", "nvidia", "tensorrt", "pycuda", "mpi4py")


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=PACKAGE_TEXTS)
def report_imports(site: Site) -> None:
    """Report the first package of ALTERNATIVES that a statement imports."""
    for name in imported_names(site.node):
        package = next((package for package in ALTERNATIVES if f"{name}.".startswith(f"{package}.")), None)
        if package is not None and not (package == "mpi4py" and site.options.to == "mlu"):  # Horovod stays on the MLU
            english, chinese = ALTERNATIVES[package]
            site.request_review(
                f"{package} has no equivalent: {english}", zh=f"{package} 没有等价物:{chinese}", risk="high"
            )
            return
