"""Report packages for NVIDIA cards, and what the accelerator has in their place.

triton, flash_attn, NVIDIA DALI, cupy, pycuda, xformers, bitsandbytes, TensorRT, pynvml and the like: what is imported,
and what setup.py asks to install. Lists of requirements, environments and images of the project are looked through too
(`migration/manifests.py`). Nothing is changed: another package is another package. Only what has been published is
named as a replacement; for the others the finding says that none is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from viaduct.cards.packages import Package, by_import, describe_package, find_imported, find_installed
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.predicates import is_string
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="P6", kind="report", targets=("npu", "mlu", "any"), patch=True, everywhere=True, last=True)

WORDS = tuple(
    sorted({name.partition(".")[0] for name in by_import()} - {"cuda", "apex"} | {"import cuda", "from cuda"})
)
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


@rule.node(ast.Import, ast.ImportFrom, words=WORDS)
def imports(site: Site) -> None:
    """Report imports of packages for NVIDIA cards."""
    for name in names_of(site.node):
        package = find_imported(name)
        if package is not None and not package.own and not own_module(site, name) and concerns(site):
            report_package(site, package, name)
            return


def concerns(site: Site) -> bool:
    """Files of a project that uses PyTorch; a TensorFlow file has its own rule."""
    project = site.work.project
    return bool(project.torch_files) and not project.is_for(TENSORFLOW, site.work.path)


def own_module(site: Site, name: str) -> bool:
    """`import cuda` where the project has a cuda.py."""
    return name.partition(".")[0] in site.work.project.own_names


def names_of(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the module names that an import statement names."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif not statement.level:
        yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


@rule.call("setuptools.setup", "distutils.core.setup")
def requirements(site: Site) -> None:
    """Report requirements in setup.py that are for NVIDIA cards."""
    for keyword in site.node.keywords:
        if keyword.arg in ("install_requires", "extras_require", "setup_requires"):
            for text in ast.walk(keyword.value):
                match = REQUIREMENT.match(text.value) if is_string(text) else None  # type: ignore[attr-defined]
                package = find_installed(match.group(1)) if match else None
                if match and package is not None:
                    report_package(site, package, match.group(1), text)


def report_package(site: Site, package: Package, name: str, node: ast.AST | None = None) -> None:
    """Report one package with what replaces it."""
    shown = name if package.name.partition(" ")[0] not in name else package.name
    english, chinese = describe_package(package, site.options.to, shown)
    if package.risk == "low":
        site.advice(english, zh=chinese, node=node)
    else:
        site.manual(english, zh=chinese, risk=package.risk, node=node)
