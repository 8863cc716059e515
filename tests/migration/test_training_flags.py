"""Flags of a training script are found in its text and in what it imports, and listed in config.py."""

from __future__ import annotations

from pathlib import Path

from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.start_scripts import render_start_scripts
from viaduct.migration.training_flags import Flag, list_flags

TRAIN = """
import argparse
import tensorflow as tf
from absl import flags
from lib import options
import mine
flags.DEFINE_string("data_dir", "/data", "help")
flags.DEFINE_integer(name="batch_size", default=32, help="x")
tf.app.flags.DEFINE_boolean("use_fp16", False, "x")
flags.DEFINE_float("rate", compute(), "x")
flags.DEFINE_string(name, "x", "a name that is computed")
mine.DEFINE_string("foreign", 1, "x")
parser = argparse.ArgumentParser()
parser.add_argument("-e", "--num-epochs", type=int, default=90)
parser.add_argument("positional")
with tf.Session() as sess:
    sess.run(train)
if __name__ == "__main__":
    main()
"""


def write(folder: Path) -> Path:
    (folder / "train.py").write_text(TRAIN)
    (folder / "lib").mkdir()
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "options.py").write_text("from absl import flags\nflags.DEFINE_list('gpus', ['0', '1'], 'x')\n")
    (folder / "other.py").write_text("from absl import flags\nflags.DEFINE_string('of_another_script', '', 'x')\n")
    (folder / "mine.py").write_text("def DEFINE_string(*args): pass\n")
    return folder


def test_flags_of_the_script_and_of_what_it_imports_are_found(tmp_path: Path) -> None:
    outcome = migrate_project(write(tmp_path), Options(entry="train.py"), jobs=1)
    assert list_flags(outcome) == [
        Flag("data_dir", "'/data'", "train.py"),
        Flag("batch_size", "32", "train.py"),
        Flag("use_fp16", "False", "train.py"),
        Flag("rate", "", "train.py"),
        Flag("num-epochs", "90", "train.py"),
        Flag("gpus", "['0', '1']", "lib/options.py"),
    ]


def test_they_stand_in_the_configuration_of_the_start_scripts(tmp_path: Path) -> None:
    outcome = migrate_project(write(tmp_path), Options(entry="train.py"), jobs=1)
    config = render_start_scripts(outcome)["scripts/config.py"]
    assert "    # 'batch_size': 32,  # train.py\n" in config
    assert "of_another_script" not in config
