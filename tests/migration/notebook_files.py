"""Notebooks that a test writes, cell by cell."""

from __future__ import annotations

import json
from typing import Any

METADATA = {"kernelspec": {"language": "python", "name": "python3", "display_name": "Python 3"}}


def code(text: str, as_list: bool = True) -> dict[str, Any]:
    source: Any = text.splitlines(keepends=True) if as_list else text
    outputs = [{"data": {"text/plain": ["é 1"]}, "output_type": "display_data"}]
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": source}


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5} | more


def dump(content: object) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


WORDS = {"cell_type": "markdown", "metadata": {}, "source": ["# tf.data.TFRecordDataset([]).batch(3)\n"]}

SET_UP = code("%matplotlib inline\n!pip install x\nimport tensorflow as tf\nfiles = !ls *.tfrecord")

USE = code("ds = tf.data.TFRecordDataset(files)\nds = ds.batch(3)  # per step\nds?")
