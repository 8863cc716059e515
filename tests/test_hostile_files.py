"""Small files that ask for a lot: whoever made them, reading one takes little memory and time, and ends in words."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from data.decoded_examples import decode_example
from data.mutations import mutate
from forked_viaduct import execute, start_command
from viaduct.comparison.formats import npy, npz, pt, safetensors
from viaduct.data import jpeg, origins, png
from viaduct.data.example import decode_image_fields, decode_label, encode_example
from viaduct.data.tfrecord import frame_record, make_header, read_records
from viaduct.errors import BadData, ViaductError
from viaduct.protobuf_wire import encode_bytes as field
from viaduct.weights.bundle import Bundle, write_bundle
from viaduct.weights.mindspore import write_mindspore
from viaduct.weights.stored import open_weights
from viaduct.weights.table import write_table

MOST = 200 << 20  # bytes
MAX_SECONDS = 30.0  # of what takes one or two, on a machine with much else to do


def refuse(read: Callable[[], Any], words: str) -> None:
    """Reading ends in a BadData that says so, within the memory and the time."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(BadData, match=words):
            read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST
    assert time.process_time() - begin < MAX_SECONDS


def archive_of(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


# torch.save's files


def tensor_pickle(*, shape: str = "(3,)", strides: str = "(1,)", values: int = 3) -> bytes:
    """Pickle of a tensor as torch.save writes it, with other numbers."""
    saved = io.BytesIO()
    torch.save(torch.zeros(3), saved)
    with zipfile.ZipFile(saved) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        content = archive.read(name)
    body = content[2:]
    assert body.count(b"K\x03tq") == 1, "the storage's length"
    assert body.count(b"K\x03\x85q") == 1, "the shape"
    assert body.count(b"K\x01\x85q") == 1, "the strides"
    body = body.replace(b"K\x03tq", pickled_int(values) + b"tq").replace(b"K\x03\x85q", pickled_tuple(shape) + b"q")
    return content[:2] + body.replace(b"K\x01\x85q", pickled_tuple(strides) + b"q")


def pickled_int(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]


def pickled_tuple(text: str) -> bytes:
    return (
        b"("
        + b"".join(map(pickled_int, json.loads(text.replace("(", "[").replace(",)", "]").replace(")", "]"))))
        + b"t"
    )


def torch_file(path: Path, content: bytes, method: int = zipfile.ZIP_STORED) -> Path:
    members = {"archive/data.pkl": content, "archive/byteorder": b"little", "archive/data/0": bytes(12)}
    return archive_of(path, {**members, "archive/version": b"3\n"}, method)


def test_the_pickle_of_a_tensor_is_read(tmp_path: Path) -> None:
    assert pt.open_array(torch_file(tmp_path / "a.pt", tensor_pickle())).tolist() == [0.0, 0.0, 0.0]


def test_a_memo_is_no_larger_than_the_pickle(tmp_path: Path) -> None:
    content = tensor_pickle().replace(b"q\x00", b"r" + struct.pack("<I", 1 << 27))  # Python's would take 2 GiB
    path = torch_file(tmp_path / "a.pt", content)
    tracemalloc.start()
    assert pt.open_array(path).tolist() == [0.0, 0.0, 0.0]  # torch's is a dictionary
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tensor_pickle(shape="(1099511627776, 3)", strides="(0, 1)"), "its tensor reaches to element"),
        (tensor_pickle(shape="(4611686018427387904, 3)", strides="(0, 1)"), "cannot be read as a tensor"),
        (tensor_pickle(shape="(1099511627776,)", strides="(0,)"), "its tensor reaches to element"),
        (tensor_pickle(values=1 << 40), "cut short"),
        (b"\x80\x02" + b"]" * 20_000 + b".", "holds list"),
        (b"\x80\x02" + b"(" * 20_000 + b"t" * 20_000 + b".", "holds tuple"),
        (b"\x80\x02X\xff\xff\xff\x7f.", "cannot be read as a tensor"),
        (b"\x80\x02" + b"}" * (1 << 19) + b".", "describes far more than one tensor"),
        (b"\x80\x02N" + b"2\x86" * 100 + b"}\x86.", "cannot be read as a tensor"),
    ],
    ids=["shape", "huge shape", "strides", "storage", "lists", "nested", "string", "many", "doubled"],
)
def test_a_pickle_takes_no_more_memory_than_its_file(tmp_path: Path, content: bytes, words: str) -> None:
    path = torch_file(tmp_path / "a.pt", content)
    refuse(lambda: pt.open_array(path), words)


def test_a_compressed_archive_is_no_file_of_torch(tmp_path: Path) -> None:
    content = tensor_pickle(values=64 << 20, shape="(67108864,)")
    members = {"archive/data.pkl": content, "archive/data/0": bytes(256 << 20), "archive/version": b"3\n"}
    path = archive_of(tmp_path / "a.pt", members, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    refuse(lambda: pt.open_array(path), "is compressed, which torch.save never does")


def test_an_old_file_of_many_opcodes_is_refused(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    files = (tmp_path / "old.pt").read_bytes()
    assert pt.open_array(tmp_path / "old.pt").tolist() == [0.0, 0.0, 0.0]
    third = files.index(b"ctorch._utils")
    (tmp_path / "old.pt").write_bytes(files[:third] + b"}" * (1 << 19) + files[third:])
    refuse(lambda: pt.open_array(tmp_path / "old.pt"), "describes far more than one tensor|damaged")


@pytest.mark.parametrize("content", [b"", b"PK", b"\x1f\x8b", b"#!/bin/sh\n", b"torch_save/", bytes(600)])
def test_what_torch_did_not_write_is_not_given_to_it(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "load")
    (tmp_path / "a.pt").write_bytes(content)
    refuse(lambda: pt.open_array(tmp_path / "a.pt"), "cannot be read as a tensor")


# numpy's


def test_an_npz_that_unfolds_a_thousandfold_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(20 << 20, np.float64))
    refuse(lambda: npz.open_array(tmp_path / "a.npz", "x"), "bytes unpack to 167,772,288")
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros(1 << 20, np.float64))
    assert npz.open_array(tmp_path / "b.npz", "x").size == 1 << 20


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_npz_is_stored_or_deflated(tmp_path: Path, method: int) -> None:
    saved = io.BytesIO()
    np.save(saved, np.zeros(3))
    path = archive_of(tmp_path / "a.npz", {"x.npy": saved.getvalue()}, method)
    refuse(lambda: npz.open_array(path, "x"), "neither stored nor deflated")


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 60 + "x), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 100 + "x), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 6000 + ",), }",
        "(" * 30_000,
        "-" * 20_000 + "1",
        "[" * 200 + "]" * 200,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "999999999999999999, " * 60 + "), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 40,), }",
    ],
    ids=["digits", "commas", "long number", "open", "minus", "lists", "large", "expression"],
)
def test_the_header_of_an_npy_is_read_in_no_time(tmp_path: Path, text: str) -> None:
    content = text.encode() + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", len(content)) + content)
    refuse(lambda: npy.open_array(tmp_path / "a.npy"), "header|shape|cut short")


def test_a_safetensors_file_of_large_numbers_is_refused(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}
    text = json.dumps({"x": entry, "9" * 5000: entry}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    refuse(lambda: safetensors.open_array(tmp_path / "a.safetensors", "x"), "cut short")
    from viaduct.comparison.readers import folder

    assert all(tensor.fault for tensor in folder.read(tmp_path / "a.safetensors").tensors)


# Records


def test_a_gzipped_record_of_two_gigabytes_is_not_unfolded(tmp_path: Path) -> None:
    length = (1 << 31) - 64
    path = tmp_path / "train-00000-of-00001"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(make_header(length))
        for _ in range(8):  # the rest would be the same
            file.write(bytes(32 << 20))
    refuse(lambda: list(read_records(path)), "the limit in a compressed file is 67,108,864")


def test_a_gzipped_record_of_the_longest_kind_is_read_in_bounds(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(3):
            file.write(frame_record(bytes(60 << 20)))
    assert path.stat().st_size < 2 << 20
    tracemalloc.start()
    lengths = [len(data) for data in read_records(path, check=False)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lengths == [60 << 20] * 3
    assert peak < MOST


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (field(1, b"\x0a\x00" * 200_000), "more than 100,000 values of one field"),
        (
            field(1, field(1, field(1, b"image/class/label") + field(2, b"\x1a\x00" * 200_000))),
            "in more than 100,000",
        ),
        (
            field(
                1,
                field(
                    1,
                    field(1, b"image/class/label") + field(2, field(3, field(1, bytes(4_000_000)))),
                ),
            ),
            "has a list of 4,000,005 bytes, expected one number|expected one",
        ),
    ],
    ids=["features", "parts", "labels"],
)
def test_a_record_of_very_many_values_is_refused(content: bytes, words: str) -> None:
    refuse(lambda: decode_label(content), words)


def jpeg_of(height: int, width: int) -> bytes:
    """A JPEG of 16x16 grey pixels that claims to be larger."""
    import simplejpeg

    made = bytearray(simplejpeg.encode_jpeg(np.full((16, 16, 1), 128, np.uint8), colorspace="GRAY"))
    frame_header = made.index(b"\xff\xc0")
    made[frame_header + 5 : frame_header + 9] = struct.pack(">HH", height, width)
    return bytes(made)


@pytest.mark.parametrize(("height", "width"), [(65_000, 65_000), (13_000, 13_000), (5_000, 5_000)])
def test_a_jpeg_that_claims_more_pixels_than_it_can_hold_is_refused(height: int, width: int) -> None:
    refuse(lambda: jpeg.decode(jpeg_of(height, width)), "the JPEG claims|pixels")


def png_of(height: int, width: int, rows: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    pixels = zlib.compress(bytes(rows * (1 + 3 * width)), 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return png.SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_a_png_that_unfolds_a_thousandfold_is_refused() -> None:
    refuse(lambda: png.decode(png_of(8000, 8000, 1)), "expands from|claims")
    assert png.decode(png_of(300, 200, 300)).shape == (300, 200, 3)


def test_a_gzipped_idx_file_that_unfolds_a_thousandfold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(struct.pack(">IIII", origins.IDX_IMAGES, 300_000, 28, 28))
        for _ in range(4):
            file.write(bytes(60 << 20))
    refuse(lambda: origins.read_idx(path, origins.IDX_IMAGES), "expands from")


# TensorFlow's checkpoints


def test_variables_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    from viaduct.weights.bundle import encode_entry, encode_header

    tensor = torch.zeros(1000)
    content = tensor.numpy().tobytes()
    pairs = [(f"v{number:05d}".encode(), encode_entry(tensor, 0, content)) for number in range(1000)]
    (tmp_path / "model.index").write_bytes(write_table([(b"", encode_header()), *pairs]))
    (tmp_path / "model.data-00000-of-00001").write_bytes(content)
    refuse(lambda: Bundle(tmp_path / "model"), "v00000 and v00001 share the bytes")


def test_an_empty_variable_of_impossible_axes_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "model", {"x": torch.zeros(0)})
    with Bundle(tmp_path / "model") as stored:
        known = stored.entries["x"]
        stored.entries["x"] = type(known)(**{**vars(known), "shape": (1 << 40, 1 << 40, 0)})
        refuse(lambda: stored.read("x"), "impossible shape")


# Whatever comes


def samples(folder: Path) -> dict[str, bytes]:
    """A small whole file of each kind."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(folder / "a.npy", values)
    np.savez(folder / "a.npz", x=values)
    np.savez_compressed(folder / "packed.npz", x=values)
    save_file({"x": values}, folder / "a.safetensors", {"options": "{}", "classes": "10"})
    torch.save(torch.from_numpy(values), folder / "a.pt")
    torch.save(torch.from_numpy(values), folder / "old.pt", _use_new_zipfile_serialization=False)
    write_bundle(folder / "model", {"x": torch.from_numpy(values), "global_step": torch.tensor(3)})
    write_mindspore(folder / "a.ckpt", {"x": torch.from_numpy(values), "y": torch.ones(3)})
    example = encode_example({"image/encoded": jpeg_of(16, 16), "image/class/label": 1, "more": [1.5, 2.0]})
    (folder / "records").write_bytes(frame_record(example) * 2)
    (folder / "records.gz").write_bytes(gzip.compress(frame_record(example) * 2))
    (folder / "example").write_bytes(example)
    (folder / "a.jpg").write_bytes(jpeg_of(16, 16))
    (folder / "a.png").write_bytes(png_of(30, 20, 30))
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "checkpoint"}


def use(path: Path) -> None:
    """Read a file of any kind as a verb would."""
    name = path.name
    if name.startswith("model"):
        with open_weights(path.with_name("model")) as stored:
            for tensor in stored.tensor_infos:
                stored.read(tensor)
    elif name.endswith(".ckpt"):
        with open_weights(path) as stored:
            for tensor in stored.tensor_infos:
                stored.read(tensor)
    elif name.startswith("records"):
        for data in read_records(path):
            decode_image_fields(data)
    elif name == "example":
        decode_example(path.read_bytes())
    elif name.endswith((".jpg", ".png")):
        jpeg.decode(path.read_bytes())
    else:
        kind = {".npy": npy, ".npz": npz, ".pt": pt, ".safetensors": safetensors}[path.suffix]
        for member in kind.read_headers(path):
            kind.open_array(path, member).sum()
        if path.suffix == ".safetensors":
            with open_weights(path) as stored:
                stored.guess_networks()


def fuzz(folder: Path, seed: int, times: int) -> None:
    """Damage files, and read them within bounds of memory and time; run in its own process."""
    files = samples(folder)
    for name in files:  # imports, and whatever is kept for ever
        use(folder / name)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MOST, resource.RLIM_INFINITY))
    rng = random.Random(seed)
    for name, content in files.items():
        for number in range(times):
            (folder / name).write_bytes(mutate(content, rng))
            os.utime(folder / name, ns=(0, number))
            signal.alarm(int(MAX_SECONDS))
            with suppress(ViaductError):
                use(folder / name)
            signal.alarm(0)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("times", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_files_are_read_within_bounds(tmp_path: Path, times: int) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"from pathlib import Path\nfrom test_hostile_files import fuzz\nfuzz(Path({str(tmp_path)!r}), 7, {times})"
    )
    with start_command(execute, code) as child:
        _, errors = child.communicate(timeout=900)
    assert child.returncode == 0, errors[-3000:]
