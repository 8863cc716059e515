"""Advise to remove the vendor's run-time patch from a script that is rewritten.

The patch is `torch_npu.contrib.transfer_to_npu`, `torch_mlu.utils.gpu_migration` or `torch_mlu.utils.model_transfer`.
Its import redirects CUDA's names to the card and disables torch.jit.script. After the migration only libraries may
still need it.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import imported_names
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._imports import RUN_TIME_PATCHES

rule = Rule(__name__, spec_rows=("P1", "6"), category="advice", targets=ALL_CARDS, runs_last=True)


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=("transfer_to_npu", "gpu_migration", "model_transfer"))
def advise_removal(site: Site) -> None:
    patch = next((name for name in imported_names(site.node) if name in RUN_TIME_PATCHES), None)
    if patch is not None:
        site.advise(
            f"the run-time patch {patch} can be removed once the project is rewritten, unless a "
            "library that it uses needs it",
            zh=f"项目改写后可去掉运行时补丁 {patch},除非所用的第三方库仍依赖它",
        )
