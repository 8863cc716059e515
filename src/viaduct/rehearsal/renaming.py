"""Renames folders within an overlay (`overlay.py`), which the kernel refuses to users without root's rights.

Renaming a folder of the user's own files fails with EXDEV, as if source and target were on two disks. The folder is
copied and removed instead; the overlay keeps both changes in its upper layer.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from typing import Any

from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.wrapping import wrap


def install(plan: Plan) -> None:
    """Wrap os.rename and os.replace where the script runs in an overlay."""
    if plan.file_view == "overlay":
        for name in ("rename", "replace"):
            wrap(os, name)(rename_or_copy)


def rename_or_copy(plain: Callable[..., None], src: Any, dst: Any, **kwargs: Any) -> None:
    """Rename by `plain`, os.rename or os.replace; copy and remove a folder that the overlay refuses to rename."""
    try:
        plain(src, dst, **kwargs)
    except OSError as error:
        if error.errno != errno.EXDEV or kwargs or not is_folder_on_same_disk(src, dst):
            raise
        if os.path.isdir(dst):
            os.rmdir(dst)  # like a rename, replaces an empty folder and raises for a non-empty one
        shutil.copytree(src, dst, symlinks=True)
        shutil.rmtree(src)


def is_folder_on_same_disk(src: Any, dst: Any) -> bool:
    """Return True if `src` is a folder and no link, and the parents of `src` and `dst` are on the same file system."""
    if os.path.islink(src) or not os.path.isdir(src):
        return False
    parents = (os.path.dirname(os.path.abspath(os.fsdecode(path))) for path in (src, dst))
    return len({os.stat(folder).st_dev for folder in parents}) == 1
