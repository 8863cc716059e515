"""Report files that are written for TensorFlow 2.

    import tensorflow as tf
    tape = tf.GradientTape()
    step = tf.function(train)

The rules are for TensorFlow 1.15 on the NPU: they need a graph, which is compiled for the device, and a session or an
Estimator that runs it. Eager code has neither, so no rule moves it to the device. There is one finding per file; the
rest of the file is migrated as usual.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, category="report", runs_last=True)

SIGNS = ("tensorflow.function", "tensorflow.GradientTape")
VERSION_2 = "tensorflow.compat.v2"


@rule.file(only_files_with=("GradientTape", ".function", "compat.v2", "compat import v2"))
def report_file(site: Site) -> None:
    first = first_sign(site)
    if first is not None:
        shown = site.text(first).splitlines()[0]
        site.request_review(
            f"`{shown}` is TensorFlow 2: these rules are for the graphs of TensorFlow 1.15, and eager code does not "
            "reach the device by them; build a graph, or use the vendor's adapter for TensorFlow 2",
            zh=f"`{shown}` 属于 TensorFlow 2:本工具的规则面向 TensorFlow 1.15 的图模式,"
            "eager 代码不会因此在设备上运行;请改为图模式,或使用厂商的 TensorFlow 2 适配",
            risk="high",
            node=first,
        )


def first_sign(site: Site) -> ast.AST | None:
    """Return the first use of tf.function or tf.GradientTape, or the first import or use of compat.v2."""
    found: list[ast.AST] = []
    for table in (site.work.index.calls, site.work.index.references):
        found += [node for name in SIGNS for node in table.get(name, [])]
        found += [node for name, nodes in table.items() if name.startswith(f"{VERSION_2}.") for node in nodes]
    for node in site.source.of_kind(ast.Import):
        found += [node for alias in node.names if alias.name.startswith(VERSION_2)]
    for statement in site.source.of_kind(ast.ImportFrom):
        names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        found += [statement for name in names if name.startswith(VERSION_2) and not statement.level]
    return min(found, key=lambda node: (node.lineno, node.col_offset), default=None)  # type: ignore[attr-defined]
