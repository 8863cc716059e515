"""TensorFlow 1 under the name of TensorFlow: names in sys.modules, and what tf.contrib does not have."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from viaduct.rehearsal.tf1_stage.alias import MissingContribFinder, add_alias


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Put modules into sys.modules that only begin alike, and take them away again."""
    names = ("old_root", "old_root.train", "old_root.keras", "old_root.keras.layers", "old_rootless")
    added = {name: ModuleType(name) for name in names}
    monkeypatch.setattr(sys, "modules", {**sys.modules, **added})
    return added


def test_modules_that_only_begin_like_the_old_name_keep_theirs(modules: dict[str, ModuleType]) -> None:
    add_alias("old_root", "new_root")
    assert "new_rootless" not in sys.modules
    assert sys.modules["new_root"] is modules["old_root"]
    assert sys.modules["new_root.keras.layers"] is modules["old_root.keras.layers"]


def test_excluded_submodules_are_not_entered_under_the_new_name(modules: dict[str, ModuleType]) -> None:
    add_alias("old_root", "new_root", excluded=("keras",))
    assert sys.modules["new_root.train"] is modules["old_root.train"]
    assert not [name for name in sys.modules if name.startswith("new_root.keras")]


def test_only_modules_of_contrib_are_explained_when_they_are_missing() -> None:
    finder = MissingContribFinder()
    assert finder.find_spec("tensorflow.train") is None
    assert finder.find_spec("tensorflow.contribution") is None
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow\.contrib\.ffmpeg: .*only a part of it: .*slim"):
        finder.find_spec("tensorflow.contrib.ffmpeg")
