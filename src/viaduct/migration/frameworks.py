"""Framework that each file of a project uses: PyTorch, TensorFlow 1, both or neither.

Decided file by file from what is imported, not from words in comments. An import that may not happen (in a `try`, in a
function, for type checkers) does not make a PyTorch file TensorFlow's. A file that imports neither belongs to the
programs that import it or that it imports.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.cards import PLUGINS
from viaduct.cards.tensorflow_api import BRIDGE, HCCL

if TYPE_CHECKING:
    from viaduct.migration.names import Names
    from viaduct.migration.project import Project

Framework = Literal["torch", "tensorflow"]
TORCH: Framework = "torch"
TENSORFLOW: Framework = "tensorflow"
FAMILIES: dict[str, Framework] = {"torch": "torch", "tf1": "tensorflow"}
"""The folders of the rules, and the framework whose files each is for."""
PYTORCH_ROOTS = {"torch", *PLUGINS}
# Libraries that are built on PyTorch and hand out its tensors and modules.
PYTORCH_COMPANIONS = {
    *("torchvision", "torchaudio", "torchtext", "torchmetrics", "torchdata", "torch_geometric", "torch_scatter", "dgl"),
    *("lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "diffusers", "transformers", "peft", "timm"),
    *("deepspeed", "fairseq", "fairscale", "detectron2", "mmcv", "mmengine", "mmdet", "mmseg", "mmcls", "mmpretrain"),
    *("ultralytics", "kornia", "monai", "segmentation_models_pytorch", "sentence_transformers", "open_clip", "clip"),
    *("stable_baselines3", "tianshou", "apex", "bitsandbytes", "xformers", "vllm", "trl", "ignite", "catalyst"),
    *("gpytorch", "botorch", "pytorch3d", "allennlp", "flair", "espnet", "speechbrain", "torchtune", "composer"),
}
TENSORFLOW_ROOTS = {
    *("tensorflow", "tensorflow_estimator", BRIDGE, "keras", "tf_slim", "tensorflow_hub", "tensorflow_addons"),
    *("tensorflow_core", "tensor2tensor", "tensorflow_datasets", "tensorlayer", "tflearn"),
}
NAMED = (b"tensorflow", b"torch", b"keras", b"horovod")
IMPORTED = re.compile(
    rb"^[ \t]*(?:import|from)[ \t]+(?:%s)\b" % "|".join(sorted(PYTORCH_COMPANIONS | TENSORFLOW_ROOTS)).encode(),
    re.MULTILINE,
)
TRAINS_TENSORFLOW = re.compile(
    r"\b(?:minimize|apply_gradients|train_and_evaluate|Estimator\w*|MonitoredTrainingSession|global_variables_initializer"
    r"|DistributedOptimizer|fit|fit_generator|Supervisor)\s*\("
)


@dataclass(frozen=True)
class Imports:
    """Imports of one file. `sure`, `maybe`: frameworks whose import always happens, or may; `modules`: all names."""

    sure: frozenset[str] = frozenset()
    maybe: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    trains_tensorflow: bool = False
    direct: bool = False  # PyTorch itself, not only a library on it


def names_framework(data: bytes) -> bool:
    """Return True for a text that is worth parsing: it speaks of a framework or imports a library on one."""
    return any(text in data for text in NAMED) or IMPORTED.search(data) is not None


def read_imports(names: Names) -> Imports:
    """Read the imports of a parsed file."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    modules: set[str] = set()
    for node in names.source.of_kinds(ast.Import, ast.ImportFrom):
        assert isinstance(node, ast.Import | ast.ImportFrom)
        if isinstance(node, ast.Import):
            roots = [alias.name for alias in node.names]
            modules.update(roots)
        else:
            base = names.imported_from(node)
            roots = [] if node.level else [base]
            modules |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
            if base == "horovod":
                roots += [f"horovod.{alias.name}" for alias in node.names]
        if not only_for_checkers(names, node):
            found[happens_always(names, node)] |= {kind for name in roots for kind in kind_of(name)}
    sure, maybe = frozenset(found[True]), frozenset(found[False])
    both = TENSORFLOW in sure and bool({TORCH, "companion"} & {*sure, *maybe})
    trains = both and TRAINS_TENSORFLOW.search(names.source.text) is not None
    return Imports(sure, maybe, frozenset(modules), trains, TORCH in sure or TORCH in maybe)


def kind_of(module: str) -> Iterator[str]:
    """Yield the framework of a module that is imported, "companion" for a library on PyTorch; nothing for others."""
    root = module.partition(".")[0]
    if root in PYTORCH_ROOTS or module.startswith("horovod.torch"):
        yield TORCH
    elif root in PYTORCH_COMPANIONS:
        yield "companion"
    elif root in TENSORFLOW_ROOTS or module.startswith(("horovod.tensorflow", "horovod.keras", f"{HCCL}.")):
        yield TENSORFLOW


def happens_always(names: Names, node: ast.AST) -> bool:
    """Return True for an import at the top of a file, in `with`, or in a `try` whose handlers import it or raise."""
    for parent in names.source.ancestors(node):
        if isinstance(parent, ast.Try) and not is_tried_otherwise(parent, node):
            return False
        if not isinstance(parent, ast.Module | ast.With | ast.Try):
            return False
    return True


def is_tried_otherwise(block: ast.Try, node: ast.AST) -> bool:
    """Return True if every handler of a `try` imports the same package or raises: then the import always happens.

    So it is with `try: import tensorflow.compat.v1 as tf` / `except ImportError: import tensorflow as tf`.
    """
    wanted = set(roots_of(node))
    for handler in block.handlers:
        inner = {root for child in ast.walk(handler) for root in roots_of(child)}
        raises = any(isinstance(item, ast.Raise) for item in ast.walk(handler))
        if not (wanted & inner) and not raises:
            return False
    return True


def roots_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]


def only_for_checkers(names: Names, node: ast.AST) -> bool:
    """Return True for an import under `if TYPE_CHECKING:`, which is never run."""
    tests = [parent.test for parent in names.source.ancestors(node) if isinstance(parent, ast.If)]
    return any("TYPE_CHECKING" in ast.unparse(test) for test in tests)


# ---- the project


def decide_frameworks(project: Project, imports: dict[str, Imports]) -> None:
    """Set `project.frameworks`, whose rules apply to each file, and `torch_files`, PyTorch's by their own imports."""
    from viaduct.migration.import_graph import Modules

    own = {path: set(own_frameworks(names)) for path, names in imports.items()}
    links: dict[str, set[str]] = {path: set() for path in imports}
    modules = Modules(imports)
    for path, found in imports.items():
        for other in modules.find_all(found.modules, path):
            links[path].add(other)
            links[other].add(path)
    decided = {path: frozenset(given) for path, given in own.items() if given}
    reached = {framework: spread(framework, own, links) for framework in (TORCH, TENSORFLOW)}
    everywhere = frozenset(framework for found in own.values() for framework in found)
    for path, found in imports.items():
        if path in decided:
            continue
        near = frozenset(framework for framework in (TORCH, TENSORFLOW) if path in reached[framework])
        maybe = frozenset({TENSORFLOW} & found.maybe)
        decided[path] = near - maybe if TORCH in near else near or maybe or everywhere
    project.frameworks = {path: found for path, found in decided.items() if found}
    project.torch_files = {path for path, found in own.items() if TORCH in found}


def own_frameworks(found: Imports) -> Iterator[str]:
    """Yield what a file's own imports say; nothing of one that imports neither, or TensorFlow only perhaps."""
    torch = found.direct or ("companion" in found.sure | found.maybe and TENSORFLOW not in found.sure)
    if torch:
        yield TORCH
    if TENSORFLOW in found.sure and (not torch or found.trains_tensorflow):
        yield TENSORFLOW


def spread(framework: str, own: dict[str, set[str]], links: dict[str, set[str]]) -> set[str]:
    """Return the undecided files that are linked to a framework's files by imports, by way of undecided files only."""
    found: set[str] = set()
    pending = [path for path, frameworks in own.items() if framework in frameworks]
    while pending:
        for other in links[pending.pop()]:
            if not own[other] and other not in found:
                found.add(other)
                pending.append(other)
    return found
