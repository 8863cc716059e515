"""The ledger counts places that need a change for the target, and finds those that no rule reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migration.small_project import migrated_project
from viaduct.migration.ledger import LedgerRow
from viaduct.migration.summary import Summary, summarise


def summary_of(folder: Path, text: str, **options: Any) -> Summary:
    (folder / "train.py").write_text(text)
    return summarise(migrated_project(folder, **options))


def counts(summary: Summary, requirement: str) -> tuple[int, ...]:
    """Return needed, changed, right, manual, unresolved."""
    for row in summary.ledger:
        if row.requirement == requirement:
            return (row.needed, row.changed, row.right, row.manual, row.unresolved)
    return (0, 0, 0, 0, 0)


def test_places_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    text = (
        "import tensorflow as tf\n"
        "def make(files):\n"
        "    a = tf.data.TFRecordDataset(files).batch(8)\n"
        "    b = tf.data.TFRecordDataset(files).batch(8, drop_remainder=True)\n"
        "    c = tf.data.TFRecordDataset(files).batch(8, **more)\n"
        "    return a, b, c\n"
    )
    summary = summary_of(tmp_path, text)
    assert counts(summary, "batches") == (3, 1, 1, 1, 0)
    assert summary.verdict == "incomplete"


def test_a_second_run_finds_everything_already_right(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2).cuda()\ny = torch.zeros(2, device='cuda')\ntorch.cuda.synchronize()\n"
    (tmp_path / "train.py").write_text(text)
    outcome = migrated_project(tmp_path)
    (tmp_path / "train.py").write_bytes(outcome.files[0].after)
    again = summarise(migrated_project(tmp_path))
    assert again.verdict == "complete"
    assert again.edits == 0
    assert sum(row.right for row in again.ledger) == sum(row.needed for row in again.ledger) == 3


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ("sessions", "import tensorflow as tf\ndef run(lib):\n    return lib.Session()\n"),
        ("sessions", "import tensorflow as tf\nfrom common import tf as other\nother.Session()\n"),
        ("batches", "import tensorflow as tf\ndef go(parts):\n    return parts['train'].batch(4)\n"),
        (
            "batches",
            "import tensorflow as tf\nds = tf.data.Dataset.range(9).window(3).flat_map(lambda w: w.batch(3))\n",
        ),
        ("device_strings", "import torch\ndef go(args):\n    if args.kind == 'cuda':\n        args.fast()\n"),
    ],
)
def test_a_place_of_which_no_rule_speaks_is_unresolved_and_listed(tmp_path: Path, requirement: str, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    outcome = migrated_project(tmp_path)
    summary = summarise(outcome)
    assert summary.verdict == "incomplete"
    needed, changed, right, manual, unresolved = counts(summary, requirement)
    assert (changed, right) == (0, 0)
    assert manual + unresolved == needed == 1
    assert any(finding.status in ("unresolved", "manual") for finding in outcome.findings)


def test_a_file_that_cannot_be_parsed_is_unresolved(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "import torch\nprint 'x'\n")
    assert counts(summary, "files")[3:] in ((1, 0), (0, 1))
    assert summary.verdict == "incomplete"


def test_a_rule_that_is_left_out_leaves_its_places_unresolved(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "import torch\nx = torch.ones(2).cuda()\n", skip=("cuda_method",))
    assert counts(summary, "moves") == (1, 0, 0, 0, 1)
    assert summary.verdict == "incomplete"


def test_rows_add_up(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2).cuda()\nm = torch.nn.DataParallel(x)\nif x.kind == 'cuda': pass\n"

    def adds_up(row: LedgerRow) -> bool:
        return row.needed == row.changed + row.right + row.manual + row.unresolved

    assert all(adds_up(row) for row in summary_of(tmp_path, text).ledger)


MODEL = "import tensorflow as tf\ndef build(x):\n    return tf.train.AdamOptimizer(0.1).minimize(x)\n"


def test_a_program_of_which_nobody_starts_the_communication_is_unresolved(tmp_path: Path) -> None:
    """The files are a library; a script that trains with it, and may start communication, is not among them."""
    (tmp_path / "model.py").write_text(MODEL)
    summary = summarise(migrated_project(tmp_path, distributed=True))
    assert counts(summary, "optimizers") == (1, 1, 0, 0, 0)
    assert counts(summary, "broadcast") == (1, 0, 0, 0, 1)
    assert counts(summary, "communication") == (1, 0, 0, 0, 1)
    assert summary.verdict == "incomplete"


def test_one_program_does_not_answer_for_another(tmp_path: Path) -> None:
    script = (
        f"{MODEL}if __name__ == '__main__':\n    step = build(tf.ones([2]))\n    with tf.Session() as s:\n"
        "        s.run(tf.global_variables_initializer())\n        s.run(step)\n"
    )
    for folder, text in (("a", script), ("b", MODEL)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"train_{folder}.py").write_text(text)
    outcome = migrated_project(tmp_path, distributed=True)
    left = [location for location in outcome.places if location.state == "unresolved"]
    assert {(location.file, location.requirement) for location in left} == {
        ("b/train_b.py", "broadcast"),
        ("b/train_b.py", "communication"),
    }


def test_the_started_script_starts_communication_for_the_file_that_trains(tmp_path: Path) -> None:
    """main.py opens the session and hands it to a model that initialises and trains: a common layout."""
    model = (
        "import tensorflow as tf\nclass Model:\n    def __init__(self, sess):\n        self.sess = sess\n"
        "    def train(self, loss):\n        step = tf.train.AdamOptimizer(0.1).minimize(loss)\n"
        "        tf.global_variables_initializer().run()\n        self.sess.run(step)\n"
    )
    main = (
        "import tensorflow as tf\nfrom model import Model\ndef main(_):\n    with tf.Session() as sess:\n"
        "        Model(sess).train(tf.ones([2]))\nif __name__ == '__main__':\n    tf.app.run()\n"
    )
    (tmp_path / "model.py").write_text(model)
    (tmp_path / "main.py").write_text(main)
    outcome = migrated_project(tmp_path, distributed=True)
    assert "init_sess.run(npu_init)" in outcome.by_path["main.py"].new_text
    assert "hccl_ops.broadcast" in outcome.by_path["model.py"].new_text
    summary = summarise(outcome)
    for requirement in ("sessions", "optimizers", "broadcast", "communication"):
        assert counts(summary, requirement) == (1, 1, 0, 0, 0), requirement
    assert summary.verdict == "complete"


def test_files_of_one_program_are_joined_by_a_package_that_only_gathers(tmp_path: Path) -> None:
    files = {
        "train.py": (
            "import tensorflow as tf\nfrom models import build\ndef main():\n    step = build(tf.ones([2]))\n"
            "    with tf.Session() as s:\n        s.run(tf.global_variables_initializer())\n        s.run(step)\n"
            "if __name__ == '__main__':\n    main()\n"
        ),
        "models/__init__.py": "from .net import build\n",
        "models/net.py": MODEL,
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    summary = summarise(migrated_project(tmp_path, distributed=True))
    assert summary.verdict == "complete"
    assert counts(summary, "broadcast") == (1, 1, 0, 0, 0)


def migrate_files(folder: Path, files: dict[str, str], **options: Any) -> Summary:
    for path, text in files.items():
        (folder / path).write_text(text)
    return summarise(migrated_project(folder, **options))


def test_a_device_from_another_file_without_the_plug_in_is_never_called_complete(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch; from config import DEVICE\nx = torch.ones(2).to(DEVICE)\n",
        "config.py": 'DEVICE = "cuda"\n',
    }
    summary = migrate_files(tmp_path, files)
    assert counts(summary, "plugin") == (1, 0, 0, 0, 1)
    assert summary.verdict == "incomplete"


def test_a_device_from_a_settings_file_without_the_plug_in_is_never_called_complete(tmp_path: Path) -> None:
    text = "import torch; x = torch.ones(2).to(settings['device'])\n"
    summary = migrate_files(tmp_path, {"train.py": text, "c.yaml": "device: cuda\n"})
    assert counts(summary, "plugin") == (1, 0, 0, 0, 1)
    assert summary.verdict == "incomplete"
