"""Packages that an extra (optional dependency) of viaduct installs, and the error for a missing one.

docs/install.md describes the extras. Code imports such a package where it is used, without handling errors: `cli.main`
passes a ModuleNotFoundError to `explain_import_error`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from traceback import walk_tb

from viaduct.errors import ViaductError

# Package -> the extra that installs it; pyproject.toml has the versions.
EXTRAS = {
    "torch": "train",
    "simplejpeg": "train",
    "tensorflow": "tf",
    "uvicorn": "serve",
    "starlette": "serve",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "optuna": "search",
    "scipy": "search",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
}
PYTHON_WITHOUT_TENSORFLOW = (3, 12)  # from this version on there is no TensorFlow 2.15
VIADUCT = Path(__file__).parent
IMPORTLIB = Path(importlib.__file__).parent


class MissingExtra(ViaductError):
    """A package of one of viaduct's extras is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"this needs {package}, which is not installed.", install_line(package))


def install_line(package: str) -> str:
    """Return the command that installs a package of an extra, with remarks."""
    line = f"pip install 'viaduct[{EXTRAS[package]}]'"
    if package == "torch":
        return f"{line} (with an Ascend or Cambricon card: after the vendor's torch, which is kept)"
    if package == "tensorflow" and sys.version_info >= PYTHON_WITHOUT_TENSORFLOW:
        return f"TensorFlow 2.15 needs Python 3.11 or older; there: {line}"
    if EXTRAS[package] == "onnx":
        return f"{line} (in an environment without TensorFlow 2.15: they need different versions of protobuf)"
    return line


def require(*packages: str) -> None:
    """Raise MissingExtra for the first of these packages that is not installed.

    Verbs call it before they start processes that need the packages.
    """
    for package in packages:
        if not is_installed(package):
            raise MissingExtra(package)


def explain_import_error(error: BaseException) -> MissingExtra | None:
    """Return the error to print if viaduct's code imported a package of an extra that is not installed, or None."""
    package = find_missing_package(error)
    return MissingExtra(package) if package and is_raised_by_viaduct(error) else None


def find_missing_package(error: BaseException) -> str | None:
    """Return the missing package of an extra that made an import fail, or None."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name if name in EXTRAS and not is_installed(name) else None


def is_raised_by_viaduct(error: BaseException) -> bool:
    """Return True if the failed import statement is in a file of viaduct."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    files = [file for file in files if not file.startswith("<frozen importlib") and IMPORTLIB not in Path(file).parents]
    return bool(files) and VIADUCT in Path(files[-1]).parents


def is_installed(package: str) -> bool:
    """Return True if a top-level package can be found, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # sys.modules has None, or a module without a spec
        return False
