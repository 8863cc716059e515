from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from viaduct.comparison import measuring
from viaduct.comparison.measures import Measures
from viaduct.comparison.measuring import Refusal, make_batches, measure_pair, measure_pairs
from viaduct.comparison.records import Pair, StoredTensor
from viaduct.comparison.tensor_statistics import summarise_array


def store_array(
    path: Path | None, array: np.ndarray | None = None, op: str = "conv1", **fields: object
) -> StoredTensor:
    if path is not None and array is not None:
        np.save(path, array)
    shape, dtype = (array.shape, str(array.dtype)) if array is not None else ((), "float32")
    made = StoredTensor(op, "Conv2d", "output", 0, 0, 0, 0, dtype, shape, path)
    return replace(made, **fields)  # type: ignore[arg-type]


def pair_of(left: StoredTensor | None, right: StoredTensor | None, **fields: object) -> Pair:
    names = [side.op if side else "*" for side in (left, right)]
    return replace(Pair(0, left, right, *names, "name"), **fields)  # type: ignore[arg-type]


def save_pair(folder: Path, left: np.ndarray, right: np.ndarray, name: str = "a", **fields: object) -> Pair:
    sides = store_array(folder / f"{name}_left.npy", left, name), store_array(folder / f"{name}_right.npy", right, name)
    return pair_of(*sides, **fields)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def reason(pair: Pair) -> str:
    found = measure_pair(pair)
    assert isinstance(found, Refusal)
    return found.reason


def good(pair: Pair) -> Measures:
    found = measure_pair(pair)
    assert isinstance(found, Measures), found
    return found


# ------------------------------------------------------------------------------------------------ what is refused


def test_a_missing_side_is_refused_with_its_reason(tmp_path: Path) -> None:
    side = store_array(tmp_path / "a.npy", normal(3))
    assert reason(pair_of(None, side)) == "the left side has no such tensor"
    assert reason(pair_of(side, None)) == "the right side has no such tensor"
    assert reason(pair_of(side, None, reason="inserted by the compiler")) == "inserted by the compiler"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_missing_file_is_refused_and_named(tmp_path: Path, side: str) -> None:
    pair = save_pair(tmp_path, normal(3), normal(3))
    (tmp_path / f"a_{side}.npy").unlink()
    assert side in reason(pair)
    assert f"a_{side}.npy" in reason(pair)


def test_a_fault_of_the_reader_is_the_reason(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, normal(3), normal(3))
    assert pair.left is not None
    assert reason(replace(pair, left=replace(pair.left, fault="a raw dump file"))) == "left: a raw dump file"


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, normal(300), normal(300))
    os.truncate(tmp_path / "a_left.npy", 400)
    assert "a_left.npy" in reason(pair)


def test_object_arrays_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([1, None], object), allow_pickle=True)
    assert "a.npy" in reason(pair_of(store_array(path), store_array(tmp_path / "b.npy", normal(2))))


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 6), (6, 4)), ((4, 6), (24,)), ((4, 8), (4, 6)), ((4, 5), (4, 6)), ((2, 0), (2, 0)), ((), (2,))],
)
def test_other_shapes_and_empty_tensors_are_refused(
    tmp_path: Path, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    text = reason(save_pair(tmp_path, np.zeros(left), np.zeros(right)))
    assert "shapes differ" in text or "empty" in text


def test_tensors_of_one_element_are_compared_whatever_their_shape(tmp_path: Path) -> None:
    assert good(save_pair(tmp_path, np.ones((1,)), np.ones(()))).cosine is None


def test_a_layout_that_the_graph_explains_is_converted(tmp_path: Path) -> None:
    right = normal(2, 20, 3, 4)
    padded = np.zeros((2, 32, 3, 4), np.float32)
    padded[:, :20] = right
    blocks = padded.reshape(2, 2, 16, 3, 4).transpose(0, 1, 3, 4, 2)
    pair = save_pair(tmp_path, np.ascontiguousarray(blocks), right, layout=("NC1HWC0", "NCHW", (2, 20, 3, 4)))
    assert good(pair).identical
    assert "shapes differ" in reason(replace(pair, layout=None))


def test_a_layout_that_does_not_explain_the_sizes_is_refused(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, normal(2, 3, 5), normal(2, 20, 3, 4), layout=("NC1HWC0", "NCHW", (2, 20, 3, 4)))
    assert reason(pair)


# ------------------------------------------------------------------------------------------------ types


def test_bfloat16_is_recognised_by_the_dump(tmp_path: Path) -> None:
    values = normal(100)
    pair = save_pair(tmp_path, (values.view(np.uint32) >> 16).astype(np.uint16), values)
    assert pair.left is not None
    found = good(replace(pair, left=replace(pair.left, dtype="bfloat16")))
    assert (found.left.dtype, found.cosine) == ("bfloat16", pytest.approx(1.0, abs=1e-4))


def test_bfloat16_that_was_saved_as_float32_is_read_as_such(tmp_path: Path) -> None:
    pair = save_pair(tmp_path, normal(100), normal(100))
    assert pair.left is not None
    assert good(replace(pair, left=replace(pair.left, dtype="bfloat16"))).identical


@pytest.mark.parametrize("other", ["float8_e5m2", "uint8"])
def test_bits_of_eight_bit_floats_are_not_compared_with_another_type(tmp_path: Path, other: str) -> None:
    pair = save_pair(tmp_path, np.arange(8, dtype=np.uint8), np.arange(8, dtype=np.uint8))
    assert pair.left is not None
    assert pair.right is not None
    left = replace(pair.left, dtype="float8_e4m3fn")
    assert good(replace(pair, left=left, right=replace(pair.right, dtype=left.dtype))).identical
    expected = f"float8_e4m3fn was stored as its bits, which cannot be compared with {other}"
    assert reason(replace(pair, left=left, right=replace(pair.right, dtype=other))) == expected


def test_statistics_are_compared_if_a_tensor_was_not_stored(tmp_path: Path) -> None:
    values = normal(10, 10)
    tensor = store_array(tmp_path / "a.npy", values)
    wide = values.astype(np.float64)
    numbers = {"min": wide.min(), "max": wide.max(), "mean": wide.mean(), "norm": float(np.sqrt((wide**2).sum()))}
    bare = replace(tensor, path=None, statistics=numbers)
    for pair in (pair_of(bare, tensor), pair_of(tensor, bare), pair_of(bare, bare)):
        found = good(pair)
        assert found.statistics_only
        assert found.max_absolute < 1e-12
        assert found.relative_euclidean < 1e-12
    for complex_values in (normal(4) + 1j, np.zeros(4, np.complex64)):  # of complex numbers the magnitudes count
        stored = store_array(tmp_path / "c.npy", complex_values)
        dumped = replace(stored, path=None, statistics=summarise_array(complex_values, stored.dtype))
        assert good(pair_of(dumped, stored)).max_absolute == 0.0
    assert "neither" in reason(pair_of(replace(bare, statistics=None), tensor))
    assert "shapes differ" in reason(pair_of(replace(bare, shape=(100,)), tensor))


# ------------------------------------------------------------------------------------------------ several processes


def many(folder: Path, count: int = 12) -> list[Pair]:
    return [save_pair(folder, normal(50) + number, normal(50), f"op{number}") for number in range(count)]


def each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BATCH_PAIRS", 2)


def test_workers_give_the_same_answers_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each_alone(monkeypatch)
    pairs = many(tmp_path)
    (tmp_path / "op4_left.npy").unlink()
    alone, together = list(measure_pairs(pairs, 1)), list(measure_pairs(pairs, 2))
    assert together == alone
    assert [pair.left_op for pair, _ in together] == [f"op{number}" for number in range(12)]
    assert [isinstance(found, Refusal) for _, found in together] == [number == 4 for number in range(12)]


def test_the_variant_of_the_divergence_reaches_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each_alone(monkeypatch)
    for _, found in measure_pairs(many(tmp_path, 4), 2, kld="floored"):
        assert isinstance(found, Measures)
        assert found.kld_variant == "floored"


class Arriving:
    """Does something to the process that unpickles it, at that moment."""

    def __init__(self, function: Callable[..., object], argument: object) -> None:
        self.what = function, (argument,)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object]]:
        return self.what


def test_only_the_pair_of_a_worker_that_died_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BATCH_PAIRS", 1)
    pairs = many(tmp_path)
    deadly = Arriving(signal.raise_signal, signal.SIGKILL)
    pairs[3] = replace(pairs[3], reason=deadly)  # type: ignore[arg-type]
    found = list(measure_pairs(pairs, 2))
    assert [pair for pair, _ in found] == pairs
    assert [isinstance(what, Refusal) for _, what in found] == [number == 3 for number in range(12)]
    assert found[3][1] == Refusal("the process that measured this pair was ended by SIGKILL (out of memory?)")


def jobs_and_batches(pairs: list[Pair]) -> tuple[list[measuring.Job], list[list[measuring.Job]]]:
    jobs = [measuring.Job(number, pair, "book") for number, pair in enumerate(pairs)]
    return jobs, make_batches(jobs)


def test_leaving_early_ends_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each_alone(monkeypatch)
    pool = measuring.WorkerPool(*jobs_and_batches(many(tmp_path)), 2)
    results = pool.results()
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert [worker.process.returncode is not None for worker in pool.workers] == [True, True]


INTERRUPTED = """
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.comparison.test_measuring import Arriving, jobs_and_batches, many, measuring
measuring.BATCH_PAIRS = 1
pairs = many(Path(sys.argv[2]), 4)
pairs[1] = replace(pairs[1], reason=Arriving(time.sleep, 600))
pool = measuring.WorkerPool(*jobs_and_batches(pairs), 2)
results = pool.results()
next(results)
print(*[worker.process.pid for worker in pool.workers], flush=True)
next(results)
"""


def test_an_interrupt_ends_everything_without_a_message_from_the_workers(tmp_path: Path) -> None:
    code = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parents[2]), str(tmp_path)]
    process = subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, output = process.communicate(timeout=600)
    assert output.count("Traceback") == 1  # the script's own
    assert output.rstrip().endswith("KeyboardInterrupt")
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_that_died_while_idle_is_replaced_without_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_alone(monkeypatch)
    pairs = many(tmp_path, 6)
    pool = measuring.WorkerPool(*jobs_and_batches(pairs), 1)
    results = pool.results()
    held, pool.batches = list(pool.batches)[1:], type(pool.batches)(list(pool.batches)[:1])
    found = [next(results), next(results)]
    pool.workers[0].process.kill()
    pool.workers[0].process.wait()
    pool.batches.extend(held)
    found += list(results)
    assert [type(what) for _, what in found] == [Measures] * 6


def test_an_exception_in_a_worker_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each_alone(monkeypatch)
    pairs = many(tmp_path, 4)
    assert pairs[1].left is not None
    pairs[1] = replace(pairs[1], left=replace(pairs[1].left, path="not a path"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="measuring op1 failed"):
        list(measure_pairs(pairs, 2))


def test_few_small_pairs_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "Worker", None)
    assert len(list(measure_pairs(many(tmp_path)))) == 12
    assert list(measure_pairs([])) == []


def test_small_pairs_share_a_message_and_large_ones_do_not(tmp_path: Path) -> None:
    small = [save_pair(tmp_path, normal(4), normal(4), f"s{number}") for number in range(3)]
    large = [replace(pair, left=replace(pair.left, shape=(1 << 22,))) for pair in small if pair.left]
    _, batches = jobs_and_batches([*small, *large])
    assert [len(batch) for batch in batches] == [3, 1, 1, 1]


def test_a_file_in_the_current_folder_is_not_imported_by_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_alone(monkeypatch)
    pairs = many(tmp_path, 4)
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert all(isinstance(found, Measures) for _, found in measure_pairs(pairs, 2))


def test_neither_measuring_nor_its_worker_imports_torch() -> None:
    code = "import sys, viaduct.comparison.measuring; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert answer.stdout == "False\n"
