"""Records that are made up hold what the script declared."""

from __future__ import annotations

from pathlib import Path

from data.decoded_examples import decode_example
from viaduct.data.jpeg import decode
from viaduct.data.tfrecord import read_records
from viaduct.rehearsal.fake_data.records import DeclaredFeature, count_records_per_file, write_records


def test_a_record_holds_what_was_declared(tmp_path: Path) -> None:
    features = {
        "image/encoded": DeclaredFeature(1, "bytes"),
        "image/height": DeclaredFeature(1, "int64"),
        "image/class/label": DeclaredFeature(1, "int64"),
        "scores": DeclaredFeature(6, "float"),
        "raw": DeclaredFeature(1, "bytes", byte_count=12),
    }
    write_records(tmp_path / "train-00000", features, 3)
    records = [decode_example(record) for record in read_records(tmp_path / "train-00000")]
    assert len(records) == 3
    image = records[0]["image/encoded"]
    assert isinstance(image, list)
    assert decode(image[0]).shape[0] == records[0]["image/height"][0]
    assert records[0]["image/class/label"][0] == 1
    assert len(records[0]["scores"]) == 6
    raw = records[0]["raw"]
    assert isinstance(raw, list)
    assert len(raw[0]) == 12


def test_many_files_share_the_records() -> None:
    assert count_records_per_file(1) == 512
    assert count_records_per_file(1024) == 8
