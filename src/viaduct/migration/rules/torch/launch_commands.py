"""Advise on commands that query NVIDIA's cards.

    import subprocess
    import torch
    subprocess.run(["nvidia-smi"])

The counterparts of nvidia-smi, `npu-smi info` and `cnmon`, have other options and output, so the rule only advises. The
launchers, torchrun and torch.distributed.launch, stay. Python code in a shell script (`python -c`, a here-document) is
not migrated.
"""

from __future__ import annotations

import ast

from viaduct.cards.advice import MONITOR, describe_monitor
from viaduct.migration.lookups import literal_text
from viaduct.migration.predicates import is_in_torch_program
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, spec_rows=("P27",), category="advice", targets=ALL_TARGETS, runs_last=True)

RUNNERS = ("os.", "subprocess.", "shutil.which")


@rule.node(ast.Constant, ast.JoinedStr, only_if_file_contains=(MONITOR,))
def advise_monitor(site: Site) -> None:
    text = site.text_of(site.node) if isinstance(site.node, ast.JoinedStr) else literal_text(site.node)
    if MONITOR not in text or site.source.is_in_f_string(site.node) or not is_in_torch_program(site):
        return
    calls = [parent for parent in site.source.ancestors(site.node) if isinstance(parent, ast.Call)]
    is_run = any((site.qualified_name(call.func) or "").startswith(RUNNERS) for call in calls)
    if is_run or is_stored_command(site, text):
        site.advise(*describe_monitor(site.options.to))


def is_stored_command(site: Site, text: str) -> bool:
    """Return True for `command = "nvidia-smi -L"`, which is probably run later."""
    statement = site.source.statement_around(site.node)
    return text.lstrip("\"'").startswith(f"{MONITOR} ") and isinstance(statement, ast.Assign | ast.AnnAssign)
