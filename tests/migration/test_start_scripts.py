"""Start scripts that a migrated project gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project
from viaduct.migration.start_scripts import render_start_scripts

TRAIN = """import torch
from lib import tools

if __name__ == "__main__":
    model = torch.nn.Linear(2, 2).cuda()
    model(torch.ones(1, 2).cuda()).sum().backward()
"""


TRAIN_TF = """import tensorflow as tf

if __name__ == "__main__":
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
"""


def migrate_files(folder: Path, files: dict[str, str], to: str = "npu", **options: object) -> Outcome:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return migrate_project(folder, Options(to=to, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", ["train.py", "old.py"])
def test_start_scripts_are_those_of_the_entry_script(tmp_path: Path, entry: str) -> None:
    outcome = migrate_files(tmp_path, {"train.py": TRAIN, "old.py": TRAIN_TF}, entry=entry)
    names = {Path(path).name for path in render_start_scripts(outcome)}
    assert ("rank_table_8p.json" in names) == (entry == "old.py"), names


def test_one_tensorflow_file_does_not_make_the_start_scripts_tensorflows(tmp_path: Path) -> None:
    files = {"train.py": TRAIN, "eval.py": TRAIN, "log.py": TRAIN_TF}
    outcome = migrate_files(tmp_path, files)
    assert not any("rank" in path for path in render_start_scripts(outcome))


def test_start_scripts_lie_elsewhere_if_an_excluded_file_has_their_folders_name(tmp_path: Path) -> None:
    outcome = migrate_files(tmp_path, {"train.py": TRAIN, "scripts": "mine"}, exclude=("scripts",))
    assert {Path(path).parent.name for path in render_start_scripts(outcome)} == {"npu_scripts"}
