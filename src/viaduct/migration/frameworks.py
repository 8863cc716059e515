"""Determine the framework of each file of a project: PyTorch, TensorFlow 1, both or neither.

The imports of a file decide. In a PyTorch file, an import of TensorFlow in a `try` or a function does not count; an
import for type checkers never does. A file that imports no framework takes that of the files that it imports or that
import it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.cards import PLUGINS
from viaduct.cards.tensorflow_api import HCCL, NPU_BRIDGE
from viaduct.migration.graphs import link_both_ways
from viaduct.migration.predicates import imported_modules

if TYPE_CHECKING:
    from viaduct.migration.names import Names
    from viaduct.migration.project import Project

Framework = Literal["torch", "tensorflow"]
TORCH: Framework = "torch"
TENSORFLOW: Framework = "tensorflow"
COMPANION = "companion"  # stands for a library based on PyTorch, where an import of PyTorch itself is TORCH
FAMILIES: dict[str, Framework] = {"torch": "torch", "tf1": "tensorflow"}
"""Folder of rules -> framework."""
PYTORCH_ROOTS = {"torch", *PLUGINS}
# Libraries that are based on PyTorch and return its tensors and modules.
PYTORCH_COMPANIONS = {
    "torchvision", "torchaudio", "torchtext", "torchmetrics", "torchdata", "torch_geometric", "torch_scatter", "dgl",
    "lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "diffusers", "transformers", "peft", "timm",
    "deepspeed", "fairseq", "fairscale", "detectron2", "mmcv", "mmengine", "mmdet", "mmseg", "mmcls", "mmpretrain",
    "ultralytics", "kornia", "monai", "segmentation_models_pytorch", "sentence_transformers", "open_clip", "clip",
    "stable_baselines3", "tianshou", "apex", "bitsandbytes", "xformers", "vllm", "trl", "ignite", "catalyst",
    "gpytorch", "botorch", "pytorch3d", "allennlp", "flair", "espnet", "speechbrain", "torchtune", "composer",
}  # fmt: skip
TENSORFLOW_ROOTS = {
    "tensorflow", "tensorflow_estimator", NPU_BRIDGE, "keras", "tf_slim", "tensorflow_hub", "tensorflow_addons",
    "tensorflow_core", "tensor2tensor", "tensorflow_datasets", "tensorlayer", "tflearn",
}  # fmt: skip
FRAMEWORKS = ("tensorflow", "torch", "keras", "horovod")
"""A text that uses a framework directly contains one of these words."""
LIBRARY_IMPORT = re.compile(
    rb"^[ \t]*(?:import|from)[ \t]+(?:%s)\b" % "|".join(sorted(PYTORCH_COMPANIONS | TENSORFLOW_ROOTS)).encode(),
    re.MULTILINE,
)
TENSORFLOW_TRAINING_CALL = re.compile(
    r"\b(?:minimize|apply_gradients|train_and_evaluate|Estimator\w*|MonitoredTrainingSession|global_variables_initializer"
    r"|DistributedOptimizer|fit|fit_generator|Supervisor)\s*\("
)


@dataclass(frozen=True)
class Imports:
    """Imports of one file. Frameworks are TORCH, TENSORFLOW and COMPANION."""

    unconditional: frozenset[str] = frozenset()  # frameworks that are always imported
    conditional: frozenset[str] = frozenset()  # frameworks that may be imported
    modules: frozenset[str] = frozenset()  # dotted names of all imported modules and members
    trains_tensorflow: bool = False  # imports both frameworks, and calls a function that trains in TensorFlow
    imports_torch: bool = False  # PyTorch itself, not only a library based on it


def mentions_framework(data: bytes) -> bool:
    return any(framework.encode() in data for framework in FRAMEWORKS)


def mentions_framework_or_library(data: bytes) -> bool:
    """Return True for a text that mentions a framework or imports a library based on one; others are not parsed."""
    return mentions_framework(data) or LIBRARY_IMPORT.search(data) is not None


def read_imports(names: Names) -> Imports:
    """Return the imports of one file."""
    frameworks: dict[bool, set[str]] = {True: set(), False: set()}  # key: the import is unconditional
    modules: set[str] = set()
    for node in names.source.imports:
        if isinstance(node, ast.Import):
            absolute = [alias.name for alias in node.names]
            modules.update(absolute)
        else:
            base = names.imported_from(node)
            absolute = [] if node.level else [base]
            modules |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
            if base == "horovod":
                absolute += [f"horovod.{alias.name}" for alias in node.names]
        if not is_for_type_checkers(names, node):
            frameworks[is_unconditional(names, node)] |= {kind for name in absolute for kind in find_frameworks(name)}
    unconditional, conditional = frozenset(frameworks[True]), frozenset(frameworks[False])
    imports_both = TENSORFLOW in unconditional and bool({TORCH, COMPANION} & (unconditional | conditional))
    trains = imports_both and TENSORFLOW_TRAINING_CALL.search(names.source.text) is not None
    return Imports(unconditional, conditional, frozenset(modules), trains, TORCH in unconditional | conditional)


def find_frameworks(module: str) -> Iterator[str]:
    """Yield the framework of an imported module, COMPANION for a library based on PyTorch, nothing for others."""
    root = module.partition(".")[0]
    if root in PYTORCH_ROOTS or module.startswith("horovod.torch"):
        yield TORCH
    elif root in PYTORCH_COMPANIONS:
        yield COMPANION
    elif root in TENSORFLOW_ROOTS or module.startswith(("horovod.tensorflow", "horovod.keras", f"{HCCL}.")):
        yield TENSORFLOW


def is_unconditional(names: Names, node: ast.AST) -> bool:
    """Return True for an import at top level or in `with`, and in a `try` whose handlers import it too or raise."""
    for parent in names.source.ancestors(node):
        if isinstance(parent, ast.Try) and not is_replaced_or_required(parent, node):
            return False
        if not isinstance(parent, ast.Module | ast.With | ast.Try):
            return False
    return True


def is_replaced_or_required(block: ast.Try, node: ast.AST) -> bool:
    """Return True if every handler of a `try` imports a package that `node` imports too, or raises."""

    def roots(*nodes: ast.AST) -> set[str]:
        return {name.partition(".")[0] for item in nodes for name in imported_modules(item)}

    return all(
        roots(node) & roots(*ast.walk(handler)) or any(isinstance(item, ast.Raise) for item in ast.walk(handler))
        for handler in block.handlers
    )


def is_for_type_checkers(names: Names, node: ast.AST) -> bool:
    """Return True for an import within an `if` that tests TYPE_CHECKING."""
    tests = [parent.test for parent in names.source.ancestors(node) if isinstance(parent, ast.If)]
    return any("TYPE_CHECKING" in ast.unparse(test) for test in tests)


def decide_frameworks(project: Project, imports: dict[str, Imports]) -> None:
    """Set `project.frameworks`, which selects the rules for a file, and `project.torch_files`.

    A file that imports no framework takes those of the files that it imports or that import it; else TensorFlow if it
    may import that; else all frameworks of the project.
    """
    own_by_path = {path: set(decide_by_imports(file_imports)) for path, file_imports in imports.items()}
    links = link_both_ways(project.imports)
    linked_files = {framework: find_linked_files(framework, own_by_path, links) for framework in (TORCH, TENSORFLOW)}
    all_frameworks = frozenset(framework for frameworks in own_by_path.values() for framework in frameworks)
    for path, file_imports in imports.items():
        decided = frozenset(own_by_path[path])
        if not decided:
            linked = frozenset(framework for framework in (TORCH, TENSORFLOW) if path in linked_files[framework])
            conditional = frozenset({TENSORFLOW} & file_imports.conditional)
            # In a file linked with PyTorch files, a conditional import of TensorFlow does not count.
            decided = linked - conditional if TORCH in linked else linked or conditional or all_frameworks
        if decided:
            project.frameworks[path] = decided
    project.torch_files = {path for path, frameworks in own_by_path.items() if TORCH in frameworks}


def decide_by_imports(imports: Imports) -> Iterator[str]:
    """Yield the frameworks of a file by its own imports.

    PyTorch: the file may import it, or a library based on it but not TensorFlow unconditionally. TensorFlow: the file
    imports it unconditionally and, if it uses PyTorch too, calls a function that trains in TensorFlow.
    """
    uses_companion = COMPANION in imports.unconditional or COMPANION in imports.conditional
    uses_torch = imports.imports_torch or (uses_companion and TENSORFLOW not in imports.unconditional)
    if uses_torch:
        yield TORCH
    if TENSORFLOW in imports.unconditional and (not uses_torch or imports.trains_tensorflow):
        yield TENSORFLOW


def find_linked_files(framework: str, own_by_path: dict[str, set[str]], links: dict[str, set[str]]) -> set[str]:
    """Return the files without a framework that are linked with files of `framework`, directly or indirectly."""
    reached: set[str] = set()
    pending = [path for path, frameworks in own_by_path.items() if framework in frameworks]
    while pending:
        new = {neighbour for neighbour in links[pending.pop()] if not own_by_path[neighbour]} - reached
        reached |= new
        pending += new
    return reached
