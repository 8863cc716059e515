"""Choice of a project's script, the reference, and paths that both sides share by mistake."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carrying.sample_carries import make_request, make_sides
from viaduct.carrying.sides import (
    MAX_LISTED_SCRIPTS,
    find_change_times,
    find_changed_since,
    find_changing_rules,
    find_entry,
    migrate,
    write_reference,
)
from viaduct.errors import BadValue

SOURCE = """\
import tensorflow as tf
import horovod.tensorflow as hvd

dataset = tf.data.TFRecordDataset("a")
dataset = dataset.batch(32)
with tf.Session() as sess:
    pass
"""


def outcome(*mains: str) -> Any:
    files = [SimpleNamespace(path=path, mentions_main=True) for path in mains]
    files.append(SimpleNamespace(path="model.py", mentions_main=False))
    return SimpleNamespace(root=Path("project"), files=files)


def test_a_project_without_a_script_is_not_reported_to_have_several() -> None:
    with pytest.raises(BadValue) as caught:
        find_entry(outcome())
    assert caught.value.message == "none of the Python files of project mentions `__main__`."
    assert "--entry PATH" in caught.value.hints[0]


def test_several_scripts_are_listed_and_one_is_taken() -> None:
    assert find_entry(outcome("train.py", "tool.ipynb")) == "train.py"
    with pytest.raises(BadValue) as caught:
        find_entry(outcome("a.py", "b.py"))
    assert caught.value.message == "project has 2 files that mention `__main__`: a.py, b.py."
    many = [f"{number}.py" for number in range(MAX_LISTED_SCRIPTS + 2)]
    with pytest.raises(BadValue, match="and 2 more"):
        find_entry(outcome(*many))


def test_a_project_whose_numbers_no_rule_changes_has_no_reference(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE.replace("batch(32)", "shuffle(32)"))
    assert find_changing_rules(migrate(make_request(tmp_path))) == {}
    assert find_changing_rules(make_sides(tmp_path)) == {}, "the user's copy was not made by rules"


def test_only_the_rules_that_change_numbers_are_applied(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    request = make_request(tmp_path)
    sides = migrate(request)
    rules = find_changing_rules(sides)
    assert list(rules) == ["tf1.dataset_drop_remainder"]
    script = write_reference(request, sides, tuple(rules))
    assert script == (tmp_path / "out" / "runs" / "reference_source" / "train.py").resolve()
    assert script.read_text() == SOURCE.replace("batch(32)", "batch(32, drop_remainder=True)")
    assert (tmp_path / "train.py").read_text() == SOURCE


def test_a_full_path_that_the_first_run_writes_to_is_noticed(tmp_path: Path) -> None:
    untouched, written = tmp_path / "data", tmp_path / "run"
    untouched.mkdir()
    before = find_change_times([f"--data={untouched}", str(written), "relative", "--steps=3"])
    assert set(before) == {str(untouched), str(written)}
    assert find_changed_since(before) == []
    (written / "deep").mkdir(parents=True)
    assert find_changed_since(before) == [str(written)]


def test_a_full_path_with_an_equals_sign_in_it_is_a_path(tmp_path: Path) -> None:
    assert set(find_change_times([f"{tmp_path}/lr=0.1", "--rate=0.1"])) == {f"{tmp_path}/lr=0.1"}


def test_a_file_that_changes_deep_below_a_path_is_noticed_and_of_many_only_some_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b" / "model.pt"
    deep.parent.mkdir(parents=True)
    deep.write_text("")
    for path in (deep, deep.parent, deep.parent.parent, tmp_path):
        os.utime(path, (1000, 1000))
    before = find_change_times([f"--out={tmp_path}"])
    assert before == {str(tmp_path): 1000.0}
    os.utime(deep, (2000, 2000))
    assert find_changed_since(before) == [str(tmp_path)]
    monkeypatch.setattr("viaduct.carrying.sides.MAX_ENTRIES", 3)
    assert find_changed_since(before) == []


def test_a_link_that_leads_nowhere_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "nowhere")
    assert find_change_times([str(tmp_path / "data")])[str(tmp_path / "data")] > 0
