"""Processes that the script starts itself: the stand-in is installed at their first import of torch or tensorflow.

Most of these processes (a data loader's workers, a resource tracker) never train, and importing torch would take longer
than their own work. Each imports `scripts/hook/sitecustomize.py` at its start, which calls `join`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from viaduct.cards import NPU
from viaduct.rehearsal import guard, provenance, renaming, terminal, trees
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal.plan import Plan
from viaduct.scripts.runner import load_file, run_script

# Argument of `python -c`; like `python script.py` it leaves the current folder, "", off sys.path.
MAIN_CODE = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from viaduct.rehearsal.grandchild import run_main; sys.exit(run_main())"
)
# By stage: the modules at whose first import the stand-in is installed.
FRAMEWORK_MODULES = {
    "torch": ("torch",),
    "tf1": ("tensorflow", *NPU.tensorflow_modules, "horovod"),  # npu_bridge, hccl
}


def join() -> None:
    """Make this process part of the rehearsal, before its first line; outside of a rehearsal do nothing."""
    plan = plans.current_plan() if os.environ.get(plans.PLAN_VARIABLE) else None
    # `child.py`, the process that runs the script, installs the stand-in itself.
    if plan is not None and not any("viaduct.rehearsal.child" in argument for argument in sys.orig_argv):
        restart_with_own_file(plan)
        guard.install(plan)  # in a mirror of the user's folders: protects the originals
        renaming.install(plan)  # in an overlay over the user's folders: lets folders be renamed
        terminal.install()  # gives a size of 80 by 24 where stdout is no terminal
        provenance.install(plan)  # in a comparison of two projects: records the files that are executed
        sys.meta_path.insert(0, FrameworkFinder(plan))


def restart_with_own_file(plan: Plan) -> None:
    """In a comparison of the original and the migrated project, replace a process `python other.py`.

    The new process runs the same file of the project that this rehearsal executes, through `run_main`, which records
    the file. A process whose file is in neither project is not replaced.
    """
    compared = trees.make_trees(plan)
    name = sys.argv[0] if sys.argv else ""
    is_file = name not in ("", "-", "-c", "-m") and os.path.isfile(name)
    if compared is None or not is_file or compared.find_position(name) is None:
        return
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]  # of Python itself, such as -u
    path = compared.find_counterpart(os.path.abspath(name))
    os.execv(sys.executable, [sys.executable, *options, "-c", MAIN_CODE, path, *sys.argv[1:]])


def run_main() -> int:
    """Run the script that is named in sys.argv as Python itself would; return its exit code."""
    path, *arguments = sys.argv[1:]
    return run_script(provenance.compile_recorded(load_file(Path(path), arguments))).code


class FrameworkFinder(importlib.abc.MetaPathFinder):
    """Finder that finds nothing, but installs the stand-in at the first import of the framework."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_plugin = self.plan.framework == "torch" and name == f"torch_{self.plan.platform}"
        if name not in FRAMEWORK_MODULES[self.plan.framework] and not is_plugin:
            return None
        sys.meta_path.remove(self)
        from viaduct.rehearsal.stage import install_stage

        install_stage(self.plan, started_by_viaduct=False)
        if name not in sys.modules:
            return importlib.util.find_spec(name)
        loader = LoadedModuleLoader(name)
        return importlib.machinery.ModuleSpec(name, loader, is_package=hasattr(loader.module, "__path__"))


class LoadedModuleLoader(importlib.abc.Loader):
    """Loader of a module that `install_stage` has imported already; the module is not executed again."""

    def __init__(self, name: str) -> None:
        self.module = sys.modules.pop(name)
        self.original_spec = self.module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec that Python has just replaced."""
        module.__spec__ = self.original_spec
