"""Processes that the script starts itself: the stand-in is installed when they first import the framework.

Most such processes (a data loader's workers, a resource tracker, a shell's helpers) never train, and importing torch
costs more than all that they do. `scripts/hook/sitecustomize.py` calls `join`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from viaduct.cards import NPU
from viaduct.rehearsal import guard, provenance, renaming, terminal, trees
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal.plan import Plan
from viaduct.scripts.runner import load_file, run_script

RUN = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from viaduct.rehearsal.grandchild import run_main; sys.exit(run_main())"
)
FIRST = {"torch": ("torch",), "tf1": ("tensorflow", *NPU.tensorflow_modules, "horovod")}


def join() -> None:
    """Join the rehearsal before the process's first line; outside a rehearsal do nothing."""
    plan = plans.current() if os.environ.get(plans.VARIABLE) else None
    if plan is not None and not is_ours():
        start_own_script(plan)
        guard.install(plan)
        renaming.install(plan)
        terminal.install()
        provenance.install(plan)
        sys.meta_path.insert(0, FrameworkFinder(plan))


def start_own_script(plan: Plan) -> None:
    """Replace a process started as `python other.py` by one that runs the own tree's file through `run_main`.

    So that file is recorded like the first script. Outside of a comparison do nothing.
    """
    known = trees.trees_of_plan(plan)
    name = sys.argv[0] if sys.argv else ""
    if known is None or name in ("", "-", "-c", "-m") or not os.path.isfile(name) or known.position(name) is None:
        return
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]
    path = known.counterpart(os.path.abspath(name))
    os.execv(sys.executable, [sys.executable, *options, "-c", RUN, path, *sys.argv[1:]])


def run_main() -> int:
    """Run the script that this process was started for, as Python itself would."""
    path, *arguments = sys.argv[1:]
    recorder = provenance.find_installed()
    script = load_file(Path(path), arguments)
    if recorder is not None:
        script = replace(script, code=recorder.load_main(script.file), file=recorder.show_main(script.file))
    return run_script(script).code


def is_ours() -> bool:
    """Return True in the process that runs the script, `child.py`, which installs the stand-in itself."""
    return any("viaduct.rehearsal.child" in argument for argument in sys.orig_argv)


class FrameworkFinder(importlib.abc.MetaPathFinder):
    """Waits for the first import of the framework, then installs the stand-in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in FIRST[self.plan.stage] and not (self.plan.stage == "torch" and name == f"torch_{self.plan.on}"):
            return None
        sys.meta_path.remove(self)
        from viaduct.rehearsal.stage import set_stage

        set_stage(self.plan, ours=False)
        return LoadedModule(name).spec() if name in sys.modules else importlib.util.find_spec(name)


class LoadedModule(importlib.abc.Loader):
    """Loader of a module that the stand-in has loaded already, so that the running import does not execute it again."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, sys.modules.pop(name)
        self.true_spec = self.module.__spec__

    def spec(self) -> importlib.machinery.ModuleSpec:
        package = hasattr(self.module, "__path__")
        return importlib.machinery.ModuleSpec(self.name, self, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module that is loaded already."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its true spec back; it was executed before."""
        module.__spec__ = self.true_spec
