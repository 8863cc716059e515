"""Report packages that are for NVIDIA cards, with their replacements.

These are triton, flash_attn, NVIDIA DALI, cupy, pycuda, xformers, bitsandbytes, TensorRT, pynvml and the like. The rule
searches imports and setup.py; `migration/manifests.py` searches requirements files, conda environments and Dockerfiles.
The findings name only published packages as replacements.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.packages import (
    Package,
    describe_package,
    find_package_of_distribution,
    find_package_of_import,
    map_packages_by_import,
)
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.lookups import imported_names, literal_text
from viaduct.migration.rule import Site, make_rule_on_migrated_code

rule = make_rule_on_migrated_code(
    __name__, target_needs="torch_functions", spec_rows=("P6",), visits_lines_left_alone=True
)

# `cuda` alone would match every file with code for CUDA, and the rule `apex` reports apex.
IMPORT_TEXTS = tuple(
    sorted(
        {name.partition(".")[0] for name in map_packages_by_import()} - {"cuda", "apex"} | {"import cuda", "from cuda"}
    )
)
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=IMPORT_TEXTS)
def report_import(site: Site) -> None:
    """Report the first package for NVIDIA cards that a statement imports, unless it is a module of the project.

    In files that train with TensorFlow the rule imports_report does this.
    """
    project = site.file.project
    if not project.torch_files or project.uses_rules_of(TENSORFLOW, site.file.path):
        return
    for name in imported_names(site.node):
        package = find_package_of_import(name)
        if package is not None and not package.has_own_rule and name.partition(".")[0] not in project.own_module_names:
            report_package(site, package, name)
            return


@rule.call("setuptools.setup", "distutils.core.setup")
def report_requirements(site: Site) -> None:
    for keyword in site.node.keywords:
        if keyword.arg in ("install_requires", "extras_require", "setup_requires"):
            for node in ast.walk(keyword.value):
                match = REQUIREMENT.match(literal_text(node))
                package = find_package_of_distribution(match[1]) if match else None
                if match and package is not None:
                    report_package(site, package, match[1], node)


def report_package(site: Site, package: Package, name: str, node: ast.AST | None = None) -> None:
    displayed = package.name if package.name.partition(" ")[0] in name else name  # "triton" for triton.language
    english, chinese = describe_package(package, site.options.to, displayed)
    if package.risk == "low":
        site.advise(english, zh=chinese, node=node)
    else:
        site.request_review(english, zh=chinese, risk=package.risk, node=node)
