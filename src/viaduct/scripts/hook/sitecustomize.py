"""Start-up hook: Python imports a module of this name; its folder is on PYTHONPATH while a script is run by viaduct.

So the processes that a script starts itself (mp.spawn, torchrun, subprocess) take part in its rehearsal or profile. An
error here must not stop them: they may belong to another Python altogether. A `sitecustomize` of the user's still runs.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# The variable names the Python that takes part; the module's `join` does the work.
_JOINED = {
    "VIADUCT_REHEARSAL_PYTHON": "viaduct.rehearsal.grandchild",
    "VIADUCT_PROFILE_PYTHON": "viaduct.profiling.worker",
}


def _run_users_own() -> None:
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _join(name: str) -> None:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
    try:
        module = importlib.import_module(name)
    finally:
        del sys.path[0]
    module.join()


try:
    for _variable, _name in _JOINED.items():
        if os.environ.get(_variable) == sys.executable:
            _join(_name)
finally:
    _run_users_own()
