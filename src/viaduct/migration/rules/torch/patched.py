"""Advise to remove the vendor's run-time patch from a script that is rewritten.

A script with `from torch_npu.contrib import transfer_to_npu` or `import torch_mlu.utils.gpu_migration` runs as it is:
the patch turns CUDA's names into the card's. Once the names themselves are rewritten it has nothing left to do in this
project, and it keeps torch.jit.script switched off. A library that the script imports may still need it, so the import
stays and gets an advice.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import imported_names
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._imports import RUN_TIME_PATCHES

rule = Rule(__name__, category="advice", targets=("npu", "mlu"), runs_last=True)


@rule.node(ast.Import, ast.ImportFrom, only_files_with=("transfer_to_npu", "gpu_migration", "model_transfer"))
def advise_removal(site: Site) -> None:
    patch = next((name for name in imported_names(site.node) if name in RUN_TIME_PATCHES), None)
    if patch is not None:
        site.advise(
            f"the run-time patch {patch} can be removed once the project is rewritten, unless a "
            "library that it uses needs it",
            zh=f"项目改写后可去掉运行时补丁 {patch},除非所用的第三方库仍依赖它",
        )
