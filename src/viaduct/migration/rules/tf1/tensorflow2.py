"""Report files that are written for TensorFlow 2.

    import tensorflow as tf
    tape = tf.GradientTape()
    step = tf.function(train)

The rules are for TensorFlow 1.15 on the NPU: a session or an Estimator runs a graph, which is compiled for the device.
Eager code has neither, so no rule moves it to the device. There is one finding per file; other code of the file is
migrated.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, target_needs="tensorflow_functions", spec_rows=("8",), category="report", runs_last=True)

TF2_FUNCTIONS = ("tensorflow.function", "tensorflow.GradientTape")
TF2_MODULE = "tensorflow.compat.v2"


@rule.file(only_if_file_contains=("GradientTape", ".function", "compat.v2", "compat import v2"))
def report_file(site: Site) -> None:
    first = find_first_use(site)
    if first is not None:
        line = site.text_of(first).splitlines()[0]
        site.request_review(
            f"`{line}` is TensorFlow 2: these rules are for the graphs of TensorFlow 1.15, and eager code would not "
            "run on the device; build a graph, or use the vendor's adapter for TensorFlow 2",
            zh=f"`{line}` 属于 TensorFlow 2:本工具的规则面向 TensorFlow 1.15 的图模式,"
            "eager 代码不会因此在设备上运行;请改为图模式,或使用厂商的 TensorFlow 2 适配",
            risk="high",
            node=first,
        )


def find_first_use(site: Site) -> ast.AST | None:
    """Return the first use of tf.function, tf.GradientTape or compat.v2."""
    uses: list[ast.AST] = []
    for table in (site.file.index.calls, site.file.index.references):
        uses += [node for name in TF2_FUNCTIONS for node in table.get(name, [])]
        uses += [node for name, nodes in table.items() if name.startswith(f"{TF2_MODULE}.") for node in nodes]
    for node in site.source.nodes_of_type(ast.Import):
        uses += [node for alias in node.names if alias.name.startswith(TF2_MODULE)]
    for statement in site.source.nodes_of_type(ast.ImportFrom):
        names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        uses += [statement for name in names if name.startswith(TF2_MODULE) and not statement.level]
    return min(uses, key=lambda node: (node.lineno, node.col_offset), default=None)  # type: ignore[attr-defined]
