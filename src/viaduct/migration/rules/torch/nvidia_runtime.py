"""Leave code of NVIDIA's inference engines as it is, and report that once.

     import torch
     cuda = torch.cuda.is_available()
     providers = ["CUDAExecutionProvider"] if cuda else ["CPUExecutionProvider"]

ONNX Runtime's CUDA provider and TensorRT run on NVIDIA cards only. A question about CUDA that decides whether they are
used stays: asked about another card, it would choose a provider that is not installed. The same holds for the
statements around an import of TensorRT or its like inside a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import literal_text
from viaduct.migration.rule import Rule, Site
from viaduct.migration.targets import cards

rule = Rule(__name__, category="report", targets=("npu", "mlu", "any"), visits_target_code=True)

PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "onnxruntime-gpu", "onnxruntime_gpu")
ENGINES = ("tensorrt", "torch_tensorrt", "torch2trt", "pycuda")
QUESTIONS = ("torch.cuda.is_available", "torch.cuda.device_count")


@rule.file(only_files_with=PROVIDERS)
def leave_provider_choice(site: Site) -> None:
    """Report the first text that names NVIDIA's provider; leave the questions that decide on any such text."""
    names = [node for node in site.source.of_kind(ast.Constant) if literal_text(node).startswith(PROVIDERS)]
    for node in names:
        for question in deciding_questions(site, node):
            mark_lines_unchanged(site, question, question.end_lineno or question.lineno, node)
    if names:
        titles = " or the ".join(target.title for target in cards(site.options))
        site.request_review(
            f"NVIDIA's runtime for ONNX is chosen here, and the {titles} has none of that name: the question about "
            "CUDA that chooses it stays, so the CPU's is used; install the vendor's runtime and name its provider",
            zh="此处选择 NVIDIA 的 ONNX 运行时,目标设备没有同名运行时:对 CUDA 的判断保持不变,因此会使用 CPU;"
            "请安装厂商的运行时并写明其 provider",
            node=names[0],
        )


def deciding_questions(site: Site, node: ast.AST) -> Iterator[ast.expr]:
    """Yield the calls of torch.cuda in the conditions under which a node is evaluated."""
    child = node
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            for origin in map(site.values.origin, ast.walk(parent.test)):
                calls = (inner for inner in ast.walk(origin) if isinstance(inner, ast.Call))
                yield from (call for call in calls if site.qualified(call.func) in QUESTIONS)
        child = parent


@rule.node(ast.Import, ast.ImportFrom, only_files_with=ENGINES)
def leave_engine(site: Site) -> None:
    """Leave the statements behind the import in its block of a function; `packages` reports the import itself."""
    names = [alias.name for alias in site.node.names] if isinstance(site.node, ast.Import) else [site.node.module or ""]
    if not any(name.partition(".")[0] in ENGINES for name in names) or site.source.function_around(site.node) is None:
        return
    block = site.source.block(site.node)
    mark_lines_unchanged(site, site.node, block[-1].end_lineno or site.node.lineno, site.node)


def mark_lines_unchanged(site: Site, node: ast.expr | ast.stmt, last: int, anchor: ast.AST) -> None:
    """Mark the lines from a node to line `last`, so that no rule edits them; a finding at the anchor explains them."""
    lines = site.work.lines
    for line in range(node.lineno, last + 1):
        site.work.explained_lines[lines[line - 1]] = lines[anchor.lineno - 1]  # type: ignore[attr-defined]
