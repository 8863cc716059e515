"""Start-up hook: Python imports a module of this name when it starts.

viaduct puts this folder on PYTHONPATH while it runs a script. Processes that the script starts with the same Python
(mp.spawn, torchrun, subprocess) then take part in its rehearsal or profile. The user's own `sitecustomize` still runs.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# Modules by environment variables. If the variable is the path of this process's Python, the module's `join` makes the
# process take part.
_MODULE_BY_VARIABLE = {
    "VIADUCT_REHEARSAL_PYTHON": "viaduct.rehearsal.grandchild",
    "VIADUCT_PROFILE_PYTHON": "viaduct.profiling.worker",
}


def _run_users_sitecustomize() -> None:
    """Import the next `sitecustomize` on sys.path, which this one hides."""
    other_folders = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", other_folders)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _join(name: str) -> None:
    """Import a module of viaduct, which need not be on sys.path, and call its `join`."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
    try:
        module = importlib.import_module(name)
    finally:
        del sys.path[0]
    module.join()


try:
    for _variable, _name in _MODULE_BY_VARIABLE.items():
        if os.environ.get(_variable) == sys.executable:
            _join(_name)
finally:
    _run_users_sitecustomize()
