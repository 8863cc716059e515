"""Run by a Python that has MindSpore: MindRecord files of every kind of field, and what MindSpore reads from them.

mindspore_records.py DIR      three.mindrecord0…2 with small pages, one.mindrecord, arrays.mindrecord; NAME.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore.mindrecord import FileWriter

SCHEMAS = {
    "one": {"file_name": {"type": "string"}, "label": {"type": "int32"}, "data": {"type": "bytes"}},
    "three": {
        "label": {"type": "int64"},
        "image": {"type": "bytes"},
        "mask": {"type": "bytes"},
        "box": {"type": "int64", "shape": [-1]},
        "score": {"type": "float32"},
    },
    "arrays": {"label": {"type": "int32", "shape": [1]}, "image": {"type": "bytes"}},
}


def row(name: str, number: int) -> dict:
    blob = np.random.default_rng(number).bytes(500 + 13 * number % 700)
    if name == "one":
        return {"file_name": f"image {number}.jpg" * (1 + number % 4), "label": number * 37 % 1000, "data": blob}
    if name == "arrays":
        return {"label": np.array([number * 301], np.int32), "image": blob}
    box = np.array([number, -number, number << 33, 200], np.int64)
    return {"label": -number << (number % 40), "image": blob, "mask": b"m" * number, "box": box, "score": 0.5}


def write(folder: Path, name: str, files: int, count: int) -> None:
    writer = FileWriter(str(folder / f"{name}.mindrecord"), files)
    writer.set_header_size(1 << 16)
    writer.set_page_size(1 << 15)
    writer.add_schema(SCHEMAS[name], name)
    for start in range(0, count, 100):  # appended to pages that are there
        writer.write_raw_data([row(name, number) for number in range(start, min(count, start + 100))])
    writer.commit()


def read(folder: Path, name: str, files: int) -> None:
    paths = (
        [str(folder / f"{name}.mindrecord{n}") for n in range(files)] if files > 1 else [f"{folder}/{name}.mindrecord"]
    )
    rows = []
    for path in paths:
        for found in ds.MindDataset([path], shuffle=False).create_dict_iterator(num_epochs=1, output_numpy=True):
            image = found["data" if name == "one" else "image"]
            rows.append([int(np.ravel(found["label"])[0]), image.tobytes().hex()])
    (folder / f"{name}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    for name, files, count in (("one", 1, 40), ("three", 3, 350), ("arrays", 1, 120)):
        write(Path(sys.argv[1]), name, files, count)
        read(Path(sys.argv[1]), name, files)
