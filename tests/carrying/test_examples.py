"""The examples go through `viaduct carry`: each agrees, or there is a reason that the page names."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from carrying.carry_scripts import TF1, CarryResult, carry_script, replace_once
from forked_viaduct import viaduct

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_torch_examples = pytest.mark.skipif(not (EXAMPLES / "torch").is_dir(), reason="the PyTorch examples are not here")
pytestmark = pytest.mark.slow


def carried_example(folder: Path, name: str, *words: str) -> CarryResult:
    """Carry a copy of an example in a folder of its own."""
    shutil.copytree(EXAMPLES, folder / "examples")
    answer = viaduct("carry", f"examples/{name}.py", "--out", "carried", "--steps", "8", *words, cwd=folder)
    return CarryResult(answer, folder / "carried")


def check_agrees_on_what_ran(result: CarryResult, *known: str) -> None:
    """An example has branches that eight steps do not reach; nothing else but what is `known` may be in doubt."""
    assert result.code in (0, 3), result.stdout + result.stderr[-3000:]
    assert {doubt["kind"] for doubt in result.record["not_proved"]} <= {"never executed", *known}, result.stdout


@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("name", ["autoencoder_monitored", "leaves_keras", "resnet_estimator", "sentences_session"])
def test_a_tensorflow_1_example_agrees(name: str, to: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    result = carried_example(tmp_path, f"tf1/{name}", "--to", to)
    check_agrees_on_what_ran(result)
    rounded = (name, to) == ("sentences_session", "npu")  # the NPU's own GELU takes its product in another order
    assert result.record["bitwise"] != rounded


def test_horovod_with_two_ranks_agrees_exactly(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    result = carried_example(tmp_path, "tf1/waves_horovod", "--ranks", "2")
    check_agrees_on_what_ran(result)
    assert result.record["bitwise"]
    assert {pair["rank"] for pair in result.record["pairs"]} == {0, 1}


def test_a_batch_that_is_dropped_on_purpose_is_no_difference(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    source = replace_once(
        replace_once(TF1, ".repeat().batch(batch_size)", ".batch(batch_size).repeat()"),
        "make_input(16)",
        "make_input(32)",
    )
    result = carry_script(tmp_path, source, "--steps", "10")
    check_agrees_on_what_ran(result)
    assert "Intended: Done in the original, too" in result.stdout
    assert "the last, smaller batch of each pass over the data is dropped" in result.stdout


SPAWNS = ["--ranks", "2", "--", "--dummy", "--epochs", "1", "--batch-size", "8", "--multiprocessing-distributed"]
SPAWNS += ["--world-size", "1", "--rank", "0"]
# name: (arguments, the limit that it meets or nothing)
TORCH: dict[str, tuple[list[str], str]] = {
    "checkpoint_resume": ([], ""),
    "amp_grad_scaler": ([], ""),
    "gan": ([], ""),
    "trainer_class": (["--ranks", "2"], ""),
    "own_cuda_methods": ([], ""),
    "cuda_extension/train": ([], ""),
    "imagenet_ddp": (SPAWNS, ""),
    "data_parallel": ([], "data-parallel"),
    "segmentation_fp64": ([], "float64"),
}


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


@needs_torch_examples
@pytest.mark.parametrize("to", ["npu", "mlu"])
@pytest.mark.parametrize("name", TORCH)
def test_a_pytorch_example_agrees_or_meets_the_limit_that_it_shows(name: str, to: str, tmp_path: Path) -> None:
    words, limit = TORCH[name]
    if words is SPAWNS:
        words = [*words, "--dist-url", f"tcp://127.0.0.1:{free_port()}"]
    result = carried_example(tmp_path, f"torch/{name}", "--to", to, *words)
    if limit:
        assert result.code == 2, result.stdout + result.stderr[-3000:]
    else:
        # One prints the capability of its card, which the others do not have.
        check_agrees_on_what_ran(result, *(["printed"] if name == "amp_grad_scaler" else []))
    refused = [hit["name"] for hit in result.record["limits"] if hit["mode"] == "error"]
    assert refused[:1] == ([limit] if limit else [])
    assert result.record["bitwise"] != bool(limit)


@needs_torch_examples
def test_a_limit_in_mode_warn_does_not_decide_the_verdict(tmp_path: Path) -> None:
    result = carried_example(tmp_path, "torch/segmentation_fp64", "--limit", "float64=warn")
    check_agrees_on_what_ran(result)
    assert {hit["mode"] for hit in result.record["limits"]} == {"warn"}
