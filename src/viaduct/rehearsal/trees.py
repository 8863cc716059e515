"""The source trees of `viaduct carry`: the original project and its migrated copy.

carry runs both and compares the runs. Each process runs one of the trees, its own. Both runs have the same PYTHONPATH,
editable installs and absolute paths in their source, so that one of them would import the other's modules. Therefore a
path into the other tree, or into the mirror (`mirror.py`), is mapped to the same position in the own tree. A position
is a file's path relative to its tree's root.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import viaduct
from viaduct.rehearsal.guard import is_within
from viaduct.rehearsal.plan import Plan

TreeName = Literal["own", "other", "outside"]  # in this process's tree, in another tree, or in none
INSTALL_FOLDERS = ("site-packages", "dist-packages")  # names of folders with installed packages
_LIBRARY_FOLDERS = (  # of viaduct and of Python's standard library, under both of its paths in a virtual environment
    os.path.dirname(os.path.realpath(viaduct.__file__)),
    os.path.realpath(sysconfig.get_paths()["stdlib"]),
    os.path.join(sys.base_prefix, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}"),
)


@dataclass(frozen=True)
class Trees:
    """Roots of the trees of a comparison, as seen by one process."""

    own_root: str  # root of the tree that this process runs
    other_roots: tuple[str, ...] = ()  # roots from which this process must not load modules
    mirror: str = ""  # folder below which a mirror reproduces the file system's paths; "" without a mirror
    visible_root: str = ""  # path at which the script sees the own tree: the original's, or one in a mirror
    _counterparts: dict[str, str] = field(default_factory=dict, compare=False)  # results of `find_counterpart`

    def find_position(self, path: str) -> str | None:
        """Return the position of a path into a tree or the mirror; None for other paths and installed packages."""
        for spelling in (os.path.abspath(path), os.path.realpath(path)):
            if is_library_file(spelling):
                return None
            root = self._find_root(spelling)
            if root and root == self.mirror:
                spelling = spelling[len(self.mirror) :]
                root = self._find_root(spelling)
            if root and root != self.mirror:
                return os.path.relpath(spelling, root)
        return None

    def _find_root(self, path: str) -> str:
        """Return the innermost root that holds a path, since one tree may lie within another; "" if none does."""
        roots = [root for root in (self.own_root, self.mirror, *self.other_roots) if root and is_within(path, [root])]
        return max(roots, key=len, default="")

    def find_counterpart(self, path: str) -> str:
        """Return the file or folder at the path's position in the own tree; the path itself if there is none."""
        if path not in self._counterparts:
            position = self.find_position(path) if path else None
            target = os.path.normpath(os.path.join(self.own_root, position)) if position is not None else path
            if not os.path.exists(target):
                return path  # not stored: the script may write the file later
            self._counterparts[path] = target
        return self._counterparts[path]

    def find_visible_path(self, path: str) -> str:
        """Return the path at which the script sees a file of the own tree; used for `__file__`."""
        if not self.visible_root or self.visible_root == self.own_root or not is_within(path, [self.own_root]):
            return path
        visible = self.visible_root + path[len(self.own_root) :]
        return visible if os.path.exists(visible) else path

    def find_tree(self, path: str) -> TreeName | None:
        """Return the tree of a file; None for installed packages, Python's standard library and viaduct."""
        spelling = os.path.abspath(path)
        if is_library_file(spelling):
            return None
        root = self._find_root(spelling) or self._find_root(os.path.realpath(path))
        if root == self.own_root:
            return "own"
        if root and root == self.visible_root and is_within(spelling, [root]):
            # An overlay shows the own tree's files here, and the original's where the own tree has none.
            return "own" if os.path.exists(self.own_root + spelling[len(root) :]) else "other"
        return "other" if root in self.other_roots else "outside"


@lru_cache(maxsize=4096)
def is_library_file(path: str) -> bool:
    """Return True for files of installed packages, the standard library and viaduct itself."""
    return any(part in INSTALL_FOLDERS for part in path.split(os.sep)) or is_within(path, _LIBRARY_FOLDERS)


def make_trees(plan: Plan) -> Trees | None:
    """Return the trees of a rehearsal; None outside of a comparison."""
    if not plan.source_tree:
        return None
    return Trees(
        plan.source_tree,
        plan.other_source_trees,
        plan.mirror if plan.file_view == "mirror" else "",
        plan.visible_project_root,
    )
