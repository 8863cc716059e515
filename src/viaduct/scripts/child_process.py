"""Commands that start a process of viaduct in which a user's script runs.

make_child_command(sys.executable, "viaduct.profiling.child")     ["/usr/bin/python", "-c", "import sys; …"]
HOOK_FOLDER                                                       the first folder in the child's PYTHONPATH
"""

from __future__ import annotations

from pathlib import Path

VIADUCT_ROOT = Path(__file__).parents[2]  # the folder that holds the package viaduct
HOOK_FOLDER = Path(__file__).parent / "hook"
"""Folder with a sitecustomize.py. Every Python process that has the folder in PYTHONPATH imports it at its start."""


def make_child_command(python: str, module: str, *arguments: str) -> list[str]:
    """Return the command of a process that imports `main` of a module and calls it with the arguments.

    `python -c` puts the current folder first in sys.path. Here it is replaced by the folder of this viaduct, which is
    removed after `import viaduct`, so that the script finds its own modules as without viaduct.
    """
    code = (
        f"import sys; sys.path[:1] = [{str(VIADUCT_ROOT)!r}]; import viaduct; sys.path[:1] = []; "
        f"from {module} import main; sys.exit(main(*sys.argv[1:]))"
    )
    return [python, "-c", code, *arguments]
