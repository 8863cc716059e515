"""Signatures: their key, their short form in tables, and damaged records."""

from __future__ import annotations

import pytest

from viaduct.tuning.signature import MAX_SHOWN_CHARS, Signature


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "a signature has no kind"),
        ({"kind": 3}, "a signature has no kind"),
        ({"kind": "conv2d", "x": [1, 2]}, r"a signature's x is \[1, 2\]"),
        ({"kind": "conv2d", "x": 0.5}, "a signature's x is 0.5"),
    ],
)
def test_a_damaged_record_is_refused(record: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signature.decode_json(record)


def test_a_signature_is_read_back_with_its_key() -> None:
    signature = Signature.of("linear", x="8x4", bias=True, groups=2)
    assert Signature.decode_json(signature.encode()) == signature
    assert signature.key == "linear x=8x4 bias=True groups=2"
    assert signature["bias"] is True


def test_a_table_shows_shapes_and_unusual_attributes_only() -> None:
    signature = Signature.of("conv2d", x="1x3x8x8", w="4x3x3x3", stride="2x2", dilation="1x1", groups=1, compute="bf16")
    assert signature.shapes == "1x3x8x8 by 4x3x3x3, stride 2x2, bf16"
    assert Signature.of("optimizer", shown="SGD, 3 tensors", sizes="1x3").shapes == "SGD, 3 tensors"
    long = Signature.of("kernel", values="1," * 100).shapes
    assert len(long) == MAX_SHOWN_CHARS
    assert long.endswith("…")
