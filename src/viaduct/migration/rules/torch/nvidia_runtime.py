"""Leave code of NVIDIA's inference engines unchanged, and report it once.

     import torch
     cuda = torch.cuda.is_available()
     providers = ["CUDAExecutionProvider"] if cuda else ["CPUExecutionProvider"]

ONNX Runtime's CUDA provider and TensorRT run on NVIDIA cards only. A test for CUDA that chooses between providers
stays: a test for another card would choose a provider that is not installed. In a function that imports TensorRT or a
similar engine, the statements after the import stay too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(
    __name__,
    target_needs="torch_functions",
    spec_rows=("P6",),
    category="report",
    targets=ALL_TARGETS,
    visits_lines_left_alone=True,
    runs_first=True,
)

PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "onnxruntime-gpu", "onnxruntime_gpu")
ENGINES = ("tensorrt", "torch_tensorrt", "torch2trt", "pycuda")
CUDA_TESTS = ("torch.cuda.is_available", "torch.cuda.device_count")


@rule.file(only_if_file_contains=PROVIDERS)
def keep_provider_choice(site: Site) -> None:
    """Report the first string that names NVIDIA's provider; keep other rules from the tests that choose a provider."""
    names = [node for node in site.source.nodes_of_type(ast.Constant) if literal_text(node).startswith(PROVIDERS)]
    for node in names:
        for test in find_cuda_tests(site, node):
            mark_lines_unchanged(site, test, test.end_lineno or test.lineno, node)
    if names:
        titles = [card.title for card in site.cards]
        site.request_review(
            f"this names NVIDIA's runtime for ONNX, which does not run on the {' or the '.join(titles)}: a test for "
            "CUDA that chooses it stays; install the vendor's runtime and name its provider",
            zh=f"此处使用 NVIDIA 的 ONNX 运行时,无法在 {'、'.join(titles)} 上运行:选择它的 CUDA 判断保持不变;"
            "请安装厂商的运行时并写明其 provider",
            node=names[0],
        )


def find_cuda_tests(site: Site, node: ast.AST) -> Iterator[ast.expr]:
    """Yield the tests for CUDA in the conditions of the branches around a node."""
    child = node
    for parent in site.source.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            for origin in map(site.values.assigned_value, ast.walk(parent.test)):
                calls = (inner for inner in ast.walk(origin) if isinstance(inner, ast.Call))
                yield from (call for call in calls if site.qualified_name(call.func) in CUDA_TESTS)
        child = parent


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=ENGINES)
def keep_engine_code(site: Site) -> None:
    """Keep other rules from the statements after an import in a function; `packages` reports the import."""
    imports_engine = any(name.partition(".")[0] in ENGINES for name in imported_modules(site.node))
    if not imports_engine or site.source.function_around(site.node) is None:
        return
    block = site.source.block_around(site.node)
    mark_lines_unchanged(site, site.node, block[-1].end_lineno or site.node.lineno, site.node)


def mark_lines_unchanged(site: Site, node: ast.expr | ast.stmt, last_line: int, reported: ast.expr | ast.stmt) -> None:
    """Keep other rules from the lines between a node and `last_line`; the finding at `reported` explains why."""
    for line in site.file.original_lines[node.lineno - 1 : last_line]:
        site.file.explained_lines[line] = site.file.original_line(reported)
