"""Messages between ranks arrive unchanged, and nothing in them is executed."""

from __future__ import annotations

import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.mutations import mutate
from training.ranks import run_on_ranks
from viaduct.errors import BadValue, LostRank
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.distributed import join_ranks
from viaduct.training.messages import decode, encode
from viaduct.training.metrics import ImageResults


def back(value: Any) -> Any:
    return decode(encode(value))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 1 << 90, 0.1, math.inf, "text \u2713", [], {}, (), [1, (2, [3])], {"a": {0: (0.9, 0.999)}},
        {1: "number", "1": "text", (0, "x"): "tuple"}, Path("runs/one"),
        SavedCheckpoint(Path("runs/one/checkpoints/step-3")),
        (None, random.Random(3).getstate(), torch.bfloat16), {"tensor": 3}, {"dict": [1]},
    ],
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    again = back(value)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.uint8]
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3, 4)])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 3).to(dtype)
    again = back({"weight": tensor, "more": [tensor.mT if tensor.ndim > 1 else tensor]})
    assert again["weight"].dtype is dtype
    assert again["weight"].shape == tensor.shape
    assert torch.equal(again["weight"], tensor)
    assert torch.equal(again["more"][0], tensor.mT if tensor.ndim > 1 else tensor)
    again["weight"].zero_()  # memory of its own


@pytest.mark.parametrize("shape", [(16, 3, 3, 3), (16, 16, 1, 1), (1, 1, 2, 2)])
def test_channels_last_is_channels_last_again(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape).to(memory_format=torch.channels_last)
    again = back(tensor)
    assert torch.equal(again, tensor)
    assert again.stride() == tensor.stride()


@pytest.mark.parametrize(
    "array",
    [np.empty(0, np.int64), np.empty((0, 3)), np.arange(12).reshape(4, 3)[:1].T[0], np.arange(6).reshape(3, 2)[:, 0]],
    ids=["no elements", "no rows", "one element of a column", "a column"],
)
def test_arrays_with_unusual_strides_come_back(array: np.ndarray) -> None:
    received = back(array)
    assert received.dtype == array.dtype
    assert received.shape == array.shape
    assert received.tolist() == array.tolist()


def test_a_tensor_that_repeats_one_element_comes_back() -> None:
    assert back(torch.tensor(3).expand(1)).tolist() == [3]
    assert back(torch.tensor(3).expand(4)).tolist() == [3, 3, 3, 3]


def test_arrays_and_records_come_back() -> None:
    counted = ImageResults(np.arange(3), np.arange(3), np.zeros(3, np.int64), math.nan, 2)
    again = back([counted])[0]
    assert isinstance(again, ImageResults)
    assert isinstance(again.images, np.ndarray)
    assert again.images.tolist() == [0, 1, 2]
    assert math.isnan(again.loss)


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 0, torch.zeros(3).to_sparse(), b"bytes"])
def test_what_cannot_be_sent_is_named(value: Any) -> None:
    with pytest.raises(BadValue, match="cannot be sent from one rank to another"):
        encode({"state": [value]})


class Trap:
    sprung = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "sprung", True)


def test_a_pickle_that_arrives_is_not_opened() -> None:
    with pytest.raises(LostRank):
        decode(pickle.dumps(Trap()))
    assert not Trap.sprung


def test_damaged_messages_end_with_a_message() -> None:
    encoded = encode(
        {"model": {"w": torch.randn(3, 4)}, "state": (1, 2.5, "x", [None]), "saved": SavedCheckpoint(Path("a"))}
    )
    rng = random.Random(3)
    for _ in range(3000):
        damaged = mutate(encoded, rng)
        try:
            decode(damaged)
        except LostRank:
            continue


def speak(folder: Path) -> None:
    with join_ranks("cpu", 30) as group:
        every = group.gather({"rank": group.rank, "tensor": torch.full((group.rank + 1,), group.rank)})
        assert [part["rank"] for part in every] == list(range(group.ranks))
        assert [part["tensor"].tolist() for part in every] == [[0], [1, 1], [2, 2, 2]]
        assert group.broadcast_value(("first", [1]) if group.is_rank_zero else None) == ("first", [1])
        assert group.run_on_rank_zero(lambda: SavedCheckpoint(Path("x"))) == SavedCheckpoint(Path("x"))
        (folder / str(group.rank)).touch()


def refuse_pickle(*_: Any, **__: Any) -> Any:
    raise AssertionError("a pickle was opened")


def speak_without_pickle(folder: Path) -> None:
    pickle.loads = pickle.load = refuse_pickle  # type: ignore[assignment]
    torch.distributed.distributed_c10d._tensor_to_object = refuse_pickle
    speak(folder)


def test_ranks_exchange_no_pickles(tmp_path: Path) -> None:
    assert [result.error for result in run_on_ranks(3, speak_without_pickle, tmp_path)] == [None] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
