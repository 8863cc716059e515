"""A project of a few files in which every kind of outcome occurs; and short ways to migrate it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project

TRAIN = '''"""Trains."""
import tensorflow as tf

from data import pipeline


def main():
    config = tf.estimator.RunConfig("out", None, 100)
    estimator = tf.estimator.Estimator(model_fn=None, config=config)
    estimator.train(pipeline.input_fn, steps=3)


if __name__ == "__main__":
    main()
'''
PIPELINE = """import tensorflow as tf


def input_fn(files=("a",)):
    ds = tf.data.TFRecordDataset(files)
    ds = ds.shuffle(100)
    return ds.batch(32)  # keep me
"""


def make_project(folder: Path) -> Path:
    files = {
        "train.py": TRAIN,
        "data/pipeline.py": PIPELINE,
        "data/__init__.py": "",
        "plain.py": "def add(a, b):\n    return a + b\n",
        "old.py": 'import tensorflow as tf\nprint "two"\n',
        "README.md": "Read me.\n",
    }
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def migrated_project(path: Path, jobs: int = 1, **options: Any) -> Outcome:
    return migrate_project(path, Options(**options), jobs, "viaduct migrate project")
