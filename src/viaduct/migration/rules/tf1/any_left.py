"""Report TensorFlow files in a project that is migrated with `--to any`.

     import tensorflow as tf
     session = tf.Session()

TensorFlow 1 has no device-neutral API: the NPU needs its own session options and the MLU its own build. With `--to any`
only the PyTorch files of a project are migrated.
"""

from __future__ import annotations

from viaduct.migration.frameworks import TENSORFLOW, find_frameworks
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="tensorflow_functions", spec_rows=("6",), category="report", targets=("any",))


@rule.file(only_if_file_contains=("tensorflow", "keras"))
def report_file(site: Site) -> None:
    """Report the first import of TensorFlow or of a package that needs it."""
    for node in site.source.imports:
        if any(TENSORFLOW in find_frameworks(module) for module in imported_modules(node)):
            site.report_unresolved(
                "TensorFlow 1 has no device-neutral API, so this code stays: migrate the file with --to npu or "
                "--to mlu, or exclude it with --exclude",
                zh="TensorFlow 1 没有与设备无关的接口,此处的 TensorFlow 代码保持不变:"
                "请用 --to npu 或 --to mlu 单独迁移,或用 --exclude 排除",
                node=node,
            )
            return
