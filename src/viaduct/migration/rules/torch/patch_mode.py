"""Import the vendor's run-time patch in the scripts that are started.

With `--mode patch`:

     import torch
    +import torch_npu
    +from torch_npu.contrib import transfer_to_npu
     model = torch.nn.Linear(2, 2).cuda()

The patch replaces torch.cuda, `.cuda()` and device strings while the script runs. Its import is inserted directly after
torch's import, in the script that `--entry` names. Without `--entry` it is inserted in scripts with a main guard, in
those that run statements and are not imported, and in a project's only file, except setup.py, conftest.py and
`__init__.py`. The rule `patch_limits` reports code that the patch cannot change.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards import MLU, NPU
from viaduct.migration.imports import find_header_end
from viaduct.migration.lookups import imported_names
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules._entry import is_imported_by_others
from viaduct.migration.rules.torch._imports import RUN_TIME_PATCHES

rule = Rule(__name__, target_needs="plugin", spec_rows=("P1", "6"), targets=ALL_CARDS, modes=("patch",), runs_last=True)

# Target -> imports of the plug-in and of its patch.
IMPORT_LINES = {
    "npu": (f"import {NPU.plugin}", "from {} import {}".format(*NPU.patch_modules[0].rsplit(".", 1))),
    "mlu": (f"import {MLU.plugin}", f"import {MLU.patch_modules[0]}"),
}
MAIN_GUARD = re.compile(r"^if\s+__name__\s*==|^if\s+.__main__.\s*==", re.MULTILINE)
NOT_STARTED = ("setup.py", "conftest.py", "__init__.py")


@rule.file(only_if_file_contains=("torch", "__main__"))
def import_patch(site: Site) -> None:
    """Import the patch after the plug-in or torch; at the top of a script that imports torch through other files."""
    if imports_patch(site) or not is_started(site) or not uses_torch(site):
        return
    plugin, patch = IMPORT_LINES[site.options.to]
    body, module = site.source.tree.body, site.target.card.plugin
    present = next((statement for statement in body if module in imported_modules(statement)), None)
    lines = [patch] if present else [plugin, patch]
    location = present or first_import_of_torch(site)
    if location is not None:
        site.edit.insert_after(location, lines)
    else:
        # A file may consist of the header only.
        line_number = min(find_header_end(site.file), len(site.source.line_starts))
        start = site.source.line_starts[line_number - 1]
        site.edit.insert(start, "".join(line + site.source.newline for line in ("import torch", *lines)))
    title = site.target.card.title
    site.report_change(
        f"the patch replaces CUDA's names by the {title}'s while the script runs",
        zh=f"补丁在运行时把 CUDA 接口替换为 {title}",
        risk="medium",
        node=location or site.source.tree.body[0],
    )


def imports_patch(site: Site) -> bool:
    """Return True if the file imports a vendor's patch; a comment with such an import does not count."""
    names = (name for statement in site.source.imports for name in imported_names(statement))
    return any(f"{name}.".startswith(tuple(f"{patch}." for patch in RUN_TIME_PATCHES)) for name in names)


def is_started(site: Site) -> bool:
    """Return True for a script that is probably started."""
    project, path = site.file.project, site.file.path
    if project.entry:
        return path == project.entry
    if path.rpartition("/")[2] in NOT_STARTED:
        return False
    if MAIN_GUARD.search(site.source.text):
        return True
    if is_imported_by_others(site):
        return False
    after_docstring = 1 if ast.get_docstring(site.source.tree) is not None else 0
    statements = site.source.tree.body[after_docstring:]
    has_effect = any(isinstance(statement, ast.Expr | ast.For | ast.While | ast.With) for statement in statements)
    return has_effect or len(project.parsed) <= 1


def uses_torch(site: Site) -> bool:
    """Return True if the script imports torch, directly or through files of the project."""
    project = site.file.project
    names = {name for node in ast.walk(site.source.tree) for name in imported_modules(node)}
    if any(name.partition(".")[0] == "torch" for name in names):
        return True
    direct = {path for path in project.torch_files if project.module_of(path)[0] in names}
    return bool(direct or project.all_imports(site.file.path) & project.torch_files)


def first_import_of_torch(site: Site) -> ast.stmt | None:
    for statement in site.source.tree.body:
        if any(name.partition(".")[0] == "torch" for name in imported_modules(statement)):
            return statement
    return None
