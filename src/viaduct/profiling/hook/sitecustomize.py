"""Python imports a module of this name when it starts; its folder is on PYTHONPATH while a script is profiled.

So the processes that a script starts itself (mp.spawn, torchrun, subprocess) are profiled too. Whatever goes wrong here
must not stop them: they may be of another Python altogether. A `sitecustomize` of the user's own still runs.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_users_own() -> None:
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _join_profile() -> None:
    if os.environ.get("VIADUCT_PROFILE_PYTHON") != sys.executable:
        return
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
    try:
        from viaduct.profiling import worker
    finally:
        del sys.path[0]
    worker.join()


try:
    _join_profile()
finally:
    _run_users_own()
