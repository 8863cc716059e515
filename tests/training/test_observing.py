"""Images, histograms, the graph and training top-5 for TensorBoard: read back by TensorBoard's own reader."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from forked_viaduct import viaduct
from training.tiny_runs import RECIPE, build_normed_network, build_training, change_part, copy_weights, train_recipe
from training.tiny_sessions import TINY, run_recipe
from viaduct.devices import cpu
from viaduct.errors import BadValue
from viaduct.recipes import Log, Recipe
from viaduct.training import sink
from viaduct.training.callbacks import Callback, MetricsFile
from viaduct.training.observing import BINS, TensorBoard, describe_graph, measure_histograms, to_pixels
from viaduct.training.rundir import RunDir

BASE = replace(
    RECIPE, model=build_normed_network, epochs=3, log=Log(every_steps=4, tensorboard="all", tensorboard_every=5)
)


def observe_training(recipe: Recipe, run: RunDir, *others: Callback, **more: Any) -> Any:
    run.path.mkdir(exist_ok=True)
    return train_recipe(recipe, run, TensorBoard(recipe.log.tensorboard_names), MetricsFile(), *others, **more)


def read_events(run: RunDir) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no TensorBoard")
    found = accumulator.EventAccumulator(str(run.path), size_guidance={"histograms": 0, "images": 0, "scalars": 0})
    found.Reload()
    return found


def test_tensorboard_reads_images_histograms_graph_and_scalars(run: RunDir) -> None:
    done = observe_training(BASE, run)
    found = read_events(run)
    tags = found.Tags()
    assert tags["images"] == ["input"]
    assert tags["graph"]
    assert {"train/l2_loss", "train/top5"} <= set(tags["scalars"])
    assert {"parameters/0.weight", "gradients/5.bias"} <= set(tags["histograms"])
    assert [event.step for event in found.Histograms("parameters/0.weight")] == [5, 10, 15]
    histogram = found.Histograms("parameters/0.weight")[-1].histogram_value
    assert histogram.num == sum(histogram.bucket) == done.model[0].weight.numel()
    nodes = {node.name: node for node in found.Graph().node}
    assert any(name.startswith("5/") and node.op in ("linear", "addmm") for name, node in nodes.items())
    assert all(source in nodes for node in nodes.values() for source in node.input)
    [image, *_] = found.Images("input")
    assert (image.width, image.height) == (64, 32)  # eight images of 16 pixels, four in a row


def test_histograms_and_images_lie_in_the_run_and_none_of_a_step_taken_again(run: RunDir) -> None:
    observe_training(BASE, run)
    file = run.path / "histograms.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 10, 15]
    assert sum(lines[0]["gradients"]["0.weight"]["counts"]) == 6 * 27
    assert sorted(path.name for path in (run.path / "images").iterdir()) == [
        f"step-{step:08d}.png" for step in (5, 10, 15)
    ]
    again = build_training(BASE, run, TensorBoard(BASE.log.tensorboard_names))
    again.progress.step = 10
    again.callbacks[0].start(again)
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [5, 10]


def read_histogram_steps(run: RunDir) -> list[int]:
    return [json.loads(line)["step"] for line in (run.path / "histograms.jsonl").read_text().splitlines()]


def test_a_run_resumed_without_histograms_keeps_none_of_a_step_taken_again(run: RunDir) -> None:
    recording = replace(TINY, log=Log(every_steps=5, tensorboard="histograms", tensorboard_every=2))
    run_recipe(run, replace(recording, steps=8))
    assert read_histogram_steps(run) == [2, 4, 6, 8]
    for step in (6, 8):  # as if the run had been killed after step 8, before it saved these
        shutil.rmtree(run.checkpoints / f"step-{step}")
    (run.path / "summary.json").unlink()
    assert run_recipe(run) == "finished"
    assert read_histogram_steps(run) == [2, 4]


def test_a_damaged_line_of_histograms_is_dropped_when_the_run_is_resumed(run: RunDir) -> None:
    lines = [b'{"step": 1}', b"\xff\xfe", b'{"step": 2', b"[3]", b'{"step": 2}', b'{"step": 3}']
    (run.path / "histograms.jsonl").write_bytes(b"\n".join(lines))
    training = build_training(BASE, run)
    training.progress.step = 2
    TensorBoard().start(training)
    assert read_histogram_steps(run) == [1, 2]


def test_recording_changes_no_weight_captured_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = train_recipe(replace(BASE, log=Log(every_steps=4)), RunDir(tmp_path / "plain"))
    looked = observe_training(BASE, RunDir(tmp_path / "looked"))
    assert all(torch.equal(copy_weights(looked)[name], tensor) for name, tensor in copy_weights(plain).items())
    monkeypatch.setattr(cpu, "get_graph_class", lambda: object)
    monkeypatch.setattr(sink, "capture_graph", lambda device, work: work)
    sunk = train_recipe(replace(BASE, sink="auto", log=Log(every_steps=4)), RunDir(tmp_path / "sunk"))
    both = observe_training(replace(BASE, sink="auto"), RunDir(tmp_path / "both"))
    assert both.sink is not None
    assert all(torch.equal(copy_weights(both)[name], tensor) for name, tensor in copy_weights(sunk).items())
    files = [tmp_path / name / "histograms.jsonl" for name in ("looked", "both")]
    steps = [[json.loads(line)["step"] for line in file.read_text().splitlines()] for file in files]
    assert steps[0] == steps[1] == [5, 10, 15]


def test_a_histogram_counts_finite_values_between_the_least_and_the_largest() -> None:
    values = torch.tensor([0.0, 1.0, 2.0, 3.0, float("nan"), float("inf")])
    [found] = measure_histograms({"it": values}).values()
    assert (found["min"], found["max"], found["num"], found["sum"], found["sum_squares"]) == (0, 3, 4, 6, 14)
    assert len(found["counts"]) == BINS
    assert sum(found["counts"]) == 4
    assert (found["counts"][0], found["counts"][-1]) == (1, 1)
    expected, _ = np.histogram([0.0, 1.0, 2.0, 3.0], bins=BINS)
    assert found["counts"] == expected.tolist()


@pytest.mark.parametrize("values", [[2.0, 2.0], [float("nan")], []])
def test_a_histogram_of_one_value_or_none_is_one(values: list[float]) -> None:
    if not values:
        assert measure_histograms({}) == {}
        return
    [found] = measure_histograms({"it": torch.tensor(values)}).values()
    assert sum(found["counts"]) == found["num"] == sum(value == value for value in values)


def test_images_are_those_that_were_loaded(run: RunDir) -> None:
    recipe = change_part(change_part(BASE, "data", flip=False), "data", pad=0)
    done = build_training(recipe, run)
    batch = next(done.iterate_batches())
    pixels = to_pixels(batch.images, recipe)
    assert np.array_equal(pixels, done.images.train.images[batch.index.numpy()])


def test_a_network_that_cannot_be_traced_is_reported_and_trained(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd(nn.Linear):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if not self.training and len(images) == 1:
                raise RuntimeError("one image is none")
            return super().forward(images.mean((2, 3)))

    observe_training(replace(BASE, model=lambda classes: Odd(3, classes)), run)
    assert (
        "--tensorboard graph: the network cannot be traced (RuntimeError: one image is none)" in capsys.readouterr().err
    )


def test_the_graph_of_a_named_network_is_whole_and_leaves_it_as_it_was() -> None:
    from viaduct import models

    network = models.build("resnet50_v1", classes=10)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    nodes = describe_graph(network, 64, torch.device("cpu"))
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert sum(kind == "convolution" for _, kind, _ in nodes) == 53
    known = {name for name, _, _ in nodes}
    assert all(source in known for _, _, inputs in nodes for source in inputs)


@pytest.mark.slow
def test_top5_of_training_is_counted_over_all_ranks(tmp_path: Path) -> None:
    for ranks in (1, 2):
        words = ("--steps", "4", "--batch", "8", "--log-every", "2", "--tensorboard", "top5", "--ranks", str(ranks))
        words = (*words, "--sync-norm", "--lr", "0.0001", "--precision", "fp32")
        run = tmp_path / f"ranks{ranks}"
        answer = viaduct("train", "shapes_taster", *words, "--device", "cpu", "--run", run)
        assert answer.returncode == 0, answer.stderr
    records = [RunDir(tmp_path / f"ranks{ranks}").read_records("log") for ranks in (1, 2)]
    assert [record["top5"] for record in records[0]] == [record["top5"] for record in records[1]]
    assert all(0 < record["top5"] <= 1 and record["top5"] >= record["top1"] for record in records[0])


def test_an_unknown_word_is_refused_and_nothing_is_observed_unasked() -> None:
    with pytest.raises(BadValue, match=r"log.tensorboard is 'pictures'; it must be some of images, histograms"):
        Log(tensorboard="pictures")
    assert RECIPE.log.tensorboard_names == set()
    assert Log(tensorboard="images, graph").tensorboard_names == {"images", "graph"}
