"""Report CUDA code in a file of a project without PyTorch.

A file without framework belongs to the programs that import it, and is migrated with them. If no file of the project
imports PyTorch, the first CUDA code of each file is reported. It stays, except `.cuda()` in a file that mentions torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.device_texts import device_literal, is_device_name
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.lookups import method_name
from viaduct.migration.rule import ALL_TARGETS, Rule, Site
from viaduct.migration.rules.torch._devices import get_qualified_root, is_of_other_library

rule = Rule(
    __name__, target_needs="moves", spec_rows=("P7", "P8"), category="report", targets=ALL_TARGETS, runs_last=True
)


@rule.file(only_if_file_contains=('"cuda', "'cuda", ".cuda("))
def report_file(site: Site) -> None:
    """Report the first CUDA code of a file in a project without PyTorch."""
    project = site.file.project
    if project.torch_files or TENSORFLOW in project.frameworks.get(site.file.path, ()):
        return
    first = next(find_cuda_code(site), None)
    if first is not None:
        site.report_unresolved(
            "this is CUDA code, and no file of this project imports PyTorch: migrate the complete project, or change "
            "this by hand",
            zh="此处是 CUDA 代码,但此文件及所给的其他文件均未导入 PyTorch:请迁移整个项目,或手工修改",
            node=first,
        )


def find_cuda_code(site: Site) -> Iterator[ast.AST]:
    """Yield `x.cuda()`, `x.to("cuda")`, `make(device="cuda")`, but no calls of other known libraries."""
    for call in site.source.nodes_of_type(ast.Call):
        method = method_name(call)
        devices = [keyword.value for keyword in call.keywords if keyword.arg and is_device_name(keyword.arg)]
        devices += call.args[:1] if method == "to" else []
        is_cuda = method == "cuda" or any(map(device_literal, devices))
        if is_cuda and not is_of_other_library(get_qualified_root(site, call.func)):
            yield call
