"""Count how many of torch_npu's public names the stand-in has; the wheel's sources are read, never imported.

    python benchmarks/stand_in_coverage.py                 # downloads the wheel into a temporary folder
    python benchmarks/stand_in_coverage.py torch_npu.whl   # or reads this one

A module's public names are its `__all__`, or its definitions without an underscore. Names that C++ code of the wheel
creates at run time are not counted. Signatures are compared by the names of their parameters.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from viaduct.rehearsal.torch_stage import install

# What scripts import, and where the stand-in keeps it. Other modules of the wheel are its own machinery.
MODULES = {
    "torch_npu.npu": ["__init__", "utils", "memory", "random", "streams", "npu_config", "autocast_utils"],
    "torch_npu.npu.amp": ["__init__", "autocast_mode", "grad_scaler"],
    "torch_npu.profiler": ["__init__"],
    "torch_npu.optim": ["__init__"],
    "torch_npu.contrib": ["__init__"],
}
Signature = tuple[str, ...] | None


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(sys.argv[1]) if len(sys.argv) > 1 else download_wheel(Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            published = {module: read_names(archive, module, files) for module, files in MODULES.items()}
    install("npu")
    print(f"{wheel.name} against the stand-in")
    for module, names in published.items():
        print_module(module, names)


def download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "torch_npu", "--no-deps", "--quiet", "--dest", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        sys.exit(f"stand_in_coverage: torch_npu cannot be downloaded here.\n{answer.stderr.strip()[-300:]}")
    return wheels[0]


def read_names(archive: zipfile.ZipFile, module: str, files: list[str]) -> dict[str, Signature]:
    """Return a package's public names, with the parameters of those that its files define."""
    held = set(archive.namelist())
    folder = module.replace(".", "/")
    trees = [ast.parse(archive.read(f"{folder}/{file}.py")) for file in files if f"{folder}/{file}.py" in held]
    defined = {name: signature for tree in trees for name, signature in list_definitions(tree)}
    listed = list_declared(trees[0]) if trees else []
    return {name: defined.get(name) for name in listed or defined}


def list_declared(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names += [
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
    return names


def list_definitions(tree: ast.Module) -> Iterator[tuple[str, Signature]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, list_parameters(node.args)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            makers = {part.name: part.args for part in node.body if isinstance(part, ast.FunctionDef)}
            maker = makers.get("__new__") or makers.get("__init__")
            yield node.name, list_parameters(maker)[1:] if maker else None


def list_parameters(arguments: ast.arguments) -> tuple[str, ...]:
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    more = [part for part in (arguments.vararg, arguments.kwarg) if part]
    return tuple(part.arg for part in (*plain, *more))


def print_module(module: str, names: dict[str, Signature]) -> None:
    ours: Any = sys.modules.get(module) or torch.npu  # type: ignore[attr-defined]
    missing = sorted(name for name in names if not hasattr(ours, name))
    comparable = {name: wanted for name, wanted in names.items() if wanted is not None and name not in missing}
    different = {name: wanted for name, wanted in comparable.items() if read_signature(getattr(ours, name)) != wanted}
    print(f"{module}: {len(names) - len(missing)} of {len(names)} names; ", end="")
    print(f"{len(comparable) - len(different)} of {len(comparable)} signatures agree")
    if missing:
        print("  missing: " + ", ".join(missing))
    for name, wanted in different.items():
        found = read_signature(getattr(ours, name)) or ()
        print(f"  other parameters: {name}({', '.join(found)}), theirs ({', '.join(wanted)})")


def read_signature(thing: Any) -> Signature:
    own = thing.__dict__ if inspect.isclass(thing) else {}
    maker = own.get("__new__") or own.get("__init__") or thing
    try:
        names = tuple(inspect.signature(maker).parameters)
    except (TypeError, ValueError):
        return None
    return names[1:] if maker is not thing else names


if __name__ == "__main__":
    main()
