"""Two trees are compared, and each process uses the files of its own tree."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

import viaduct
from rehearsal.plans import make_plan
from viaduct.rehearsal.trees import Trees, make_trees


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """Make own/net.py, other/net.py and other/extra.py below a folder."""
    for name in ("own/net.py", "other/net.py", "other/extra.py", "outside.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


@pytest.fixture
def trees(roots: Path) -> Trees:
    return Trees(str(roots / "own"), (str(roots / "other"),), mirror=str(roots / "mirror"))


def test_outside_of_a_comparison_there_are_no_trees(tmp_path: Path) -> None:
    assert make_trees(make_plan(tmp_path)) is None


def test_installed_packages_and_viaduct_belong_to_no_side(trees: Trees, roots: Path) -> None:
    for path in (viaduct.__file__, os.__file__, f"{sysconfig.get_paths()['purelib']}/x.py"):
        assert trees.find_tree(path) is None
        assert trees.find_position(path) is None
        assert trees.find_counterpart(path) == path
    assert trees.find_tree(str(roots / "own" / ".venv" / "site-packages" / "x.py")) is None


def test_a_file_that_only_the_other_tree_has_keeps_its_path_until_the_own_tree_has_it(
    trees: Trees, roots: Path
) -> None:
    path = str(roots / "other" / "extra.py")
    assert trees.find_counterpart(path) == path
    (roots / "own" / "extra.py").touch()
    assert trees.find_counterpart(path) == str(roots / "own" / "extra.py")


def test_a_path_into_the_other_tree_or_the_mirror_leads_to_the_own_file(trees: Trees, roots: Path) -> None:
    own = str(roots / "own" / "net.py")
    (roots / "link").symlink_to(roots / "other")
    for path in (own, str(roots / "other" / "net.py"), f"{roots}/mirror{roots}/other/net.py", f"{roots}/link/net.py"):
        assert trees.find_position(path) == "net.py"
        assert trees.find_counterpart(path) == own
    assert trees.find_counterpart("") == ""


def test_the_side_of_a_file(trees: Trees, roots: Path) -> None:
    sides = {name: trees.find_tree(str(roots / name)) for name in ("own/net.py", "other/net.py", "outside.py")}
    assert sides == {"own/net.py": "own", "other/net.py": "other", "outside.py": "outside"}


def test_a_tree_within_the_other_is_the_one_that_counts(roots: Path) -> None:
    inner = roots / "other" / "migrated"
    inner.mkdir()
    trees = Trees(str(inner), (str(roots / "other"),))
    assert (trees.find_tree(str(inner / "net.py")), trees.find_position(str(inner / "net.py"))) == ("own", "net.py")


def test_under_an_overlay_the_script_sees_its_files_at_the_originals_path(roots: Path) -> None:
    own, other = str(roots / "own"), str(roots / "other")
    trees = Trees(own, (other,), visible_root=other)
    assert trees.find_visible_path(f"{own}/net.py") == f"{other}/net.py"
    assert trees.find_visible_path(f"{own}/written_later.py") == f"{own}/written_later.py"
    assert (trees.find_tree(f"{other}/net.py"), trees.find_tree(f"{other}/extra.py")) == ("own", "other")
