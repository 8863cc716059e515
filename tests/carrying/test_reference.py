"""The reference: the original with the intended changes alone."""

from __future__ import annotations

from pathlib import Path

from carrying.sample_carries import make_request, make_sides
from viaduct.carrying.reference import find_changing_rules, write_reference
from viaduct.carrying.sides import migrate

SOURCE = """\
import tensorflow as tf
import horovod.tensorflow as hvd

dataset = tf.data.TFRecordDataset("a")
dataset = dataset.batch(32)
with tf.Session() as sess:
    pass
"""


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
