"""Log lines as the scripts expect them that read the reference systems' logs (section 10 of the network facts)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training.tiny_runs import RECIPE, VALIDATION, After, train_recipe
from viaduct.recipes import Evaluation, Log, Recipe
from viaduct.training.callbacks import Checkpointing, LogRecord, StopAtThreshold
from viaduct.training.logs import FORMATS, LogLines, compute_latencies, find_device_index
from viaduct.training.rundir import RunDir

NUMBER = r"-?\d+(\.\d+)?(e[-+]\d+)?"
CLOCK = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"

Printed = Callable[..., list[str]]
CollectLines = Callable[[str, Callable[[Any], None]], list[str]]


@pytest.fixture
def printed(run: RunDir, capsys: pytest.CaptureFixture[str]) -> Printed:
    """`printed("tf")` trains ten steps and gives the lines that went to standard output."""

    def train(name: str, recipe: Recipe = RECIPE, *others: Any) -> list[str]:
        train_recipe(replace(recipe, log=Log(every_steps=5, format=name)), run, FORMATS[name](), *others)
        return capsys.readouterr().out.splitlines()

    return train


def matching(lines: list[str], pattern: str) -> list[str]:
    return [line for line in lines if re.fullmatch(pattern, line)]


@pytest.fixture
def collect_lines(tmp_path: Path) -> CollectLines:
    """`collect_lines("tf", ask)` is what a format says when it is asked outside of a run."""

    def listen(name: str, ask: Callable[[Any], None]) -> list[str]:
        lines: LogLines = FORMATS[name]()
        lines.path = tmp_path / "log.txt"
        ask(lines)
        return lines.path.read_text().splitlines()

    return listen


SEED = LogRecord(8000, 0.2, 6.117, 6.656, 0.01, 0.1, 741.5, 1.0, 0, losses=[6.2, 6.034])


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_printed_that_is_not_in_the_file_too(name: str, printed: Printed, run: RunDir) -> None:
    lines = printed(name)
    assert lines
    assert (run.path / "log.txt").read_text().splitlines() == lines


def test_a_resumed_run_adds_to_its_file(printed: Printed, run: RunDir) -> None:
    both = printed("resnext") + printed("resnext")
    assert (run.path / "log.txt").read_text().splitlines() == both


def test_every_format_that_a_recipe_can_name_is_there() -> None:
    words = ("resnext", "tf", "dll", "events", "mindspore")
    assert tuple(FORMATS) == words
    assert Log().format == "resnext"


def test_the_default_format_prints_the_seeds_line_to_the_letter(collect_lines: CollectLines) -> None:
    line = "step:  8000  epoch:  0.2  FPS:  741.5  loss: 6.117  total_loss: 6.656  lr:0.1000000"
    assert collect_lines("resnext", lambda lines: lines.log(None, SEED)) == [line]


def test_the_default_format_prints_a_table_of_steps_and_of_evaluations(printed: Printed) -> None:
    lines = printed("resnext")
    step = (
        r"step:     5  epoch:  1\.0  FPS:[ \d]{5,}\.\d  loss:[ \d]\d\.\d{3}  total_loss:[ \d]\d\.\d{3}  lr:0\.1000000"
    )
    evaluation = rf"    5    1\.0  \d+\.\d{{3}}  100\.00  [ \d]{{3}}\.\d\d  {CLOCK}"
    assert lines[0] == "Step   Epoch   Speed   Loss   FinLoss   LR"
    assert re.fullmatch(step, lines[1])
    assert lines[2:5] == [
        "Evaluating",
        f"Validation dataset size: {VALIDATION}",
        " step  epoch  top1    top5     loss   checkpoint_time(UTC)",
    ]
    assert re.fullmatch(evaluation, lines[5])
    assert lines[6] == "Finished evaluation"
    assert len(lines) == 1 + 2 * 6


def test_tf_prints_what_an_estimator_does(printed: Printed, run: RunDir) -> None:
    lines = printed("tf", RECIPE, Checkpointing())
    info = "INFO:tensorflow:"
    results = rf"\{{'loss': {NUMBER}, 'top_1_accuracy': {NUMBER}, 'top_5_accuracy': 1\.0, 'global_step': 10\}}"
    path = re.escape(str(run.checkpoints / "step-10"))
    for pattern in (
        rf"{info}global_step/sec: {NUMBER}",
        rf"{info}global_step\.\.\.10",
        rf"{info}Saving checkpoints for 10 into {path}\.",
        rf"{info}Evaluation \[3/3\]",
        rf"{info}Finished evaluation at \d{{4}}-\d\d-\d\d-\d\d:\d\d:\d\d",
        rf"{info}Saving dict for global step 10: global_step = 10, loss = {NUMBER}, top_1_accuracy = {NUMBER}, "
        rf"top_5_accuracy = {NUMBER}",
        rf"{info}Saving 'checkpoint_path' summary for global step 10: {path}",
        rf"{info}Evaluation results: {results}",
        rf"{info}cross_entropy = {NUMBER}, learning_rate = 0\.1, train_accuracy = {NUMBER}",
    ):
        assert matching(lines, pattern), pattern
    assert re.fullmatch(rf"{info}Loss for final step: {NUMBER}\.", lines[-1])


def test_tf_counts_an_evaluation_by_tenths(collect_lines: CollectLines) -> None:
    def evaluate(lines: Any) -> None:
        for done in range(1, 782):
            lines.evaluating(None, done, 781)

    counts = [*range(78, 781, 78), 781]
    assert collect_lines("tf", evaluate) == [f"INFO:tensorflow:Evaluation [{count}/781]" for count in counts]


def test_tf_counts_a_short_evaluation_by_batches(collect_lines: CollectLines) -> None:
    def evaluate(lines: Any) -> None:
        for done in range(1, 4):
            lines.evaluating(None, done, 3)

    assert collect_lines("tf", evaluate) == [f"INFO:tensorflow:Evaluation [{done}/3]" for done in (1, 2, 3)]


def test_dll_prints_what_dllogger_does(printed: Printed) -> None:
    lines = printed("dll")
    head = rf"DLL {CLOCK}\.\d{{6}} - "
    values = "  ".join(
        rf"{name} : {NUMBER}" for name in ("imgs_per_sec", "cross_entropy", "l2_loss", "total_loss", "learning_rate")
    )
    assert re.fullmatch(rf"{head}\(1, 5\) {values}", lines[0])
    assert re.fullmatch(rf"{head}\(2, 10\) {values}", lines[1])
    assert re.fullmatch(rf"{head}\(\) train_throughput : {NUMBER}", lines[2])
    last = ["top1_accuracy", "top5_accuracy", "eval_throughput"]
    last += [f"eval_latency_{which}" for which in ("avg", "p90", "p95", "p99")]
    assert re.fullmatch(head + r"\(\) " + "  ".join(rf"{name} : {NUMBER}" for name in last), lines[3])


def test_dll_writes_the_same_as_json_lines(printed: Printed, run: RunDir) -> None:
    printed("dll")
    records = [json.loads(line) for line in (run.path / "log.json").read_text().splitlines()]
    assert [record["step"] for record in records] == [[1, 5], [2, 10], [], []]
    assert all(record["type"] == "LOG" for record in records)
    data = records[0]["data"]
    assert data["total_loss"] == pytest.approx(data["cross_entropy"] + data["l2_loss"])
    assert data["l2_loss"] > 0
    assert data["learning_rate"] == pytest.approx(0.1)
    assert 0 <= records[-1]["data"]["top1_accuracy"] <= 1


def test_dll_writes_no_json_that_others_cannot_read(collect_lines: CollectLines, tmp_path: Path) -> None:
    def log(lines: Any) -> None:
        lines.started_at, lines.images_per_s, lines.json_path = 0.0, [], tmp_path / "log.json"
        lines.log(None, replace(SEED, loss=math.nan))
        record = json.loads(lines.json_path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert record["data"]["cross_entropy"] is None

    assert "cross_entropy : nan" in collect_lines("dll", log)[0]


def test_latencies_are_those_between_batches_in_milliseconds() -> None:
    assert compute_latencies([0.0, 0.5]) == {}
    marks = [0.0]
    for gap in range(1, 102):
        marks.append(marks[-1] + gap / 1000)
    found = compute_latencies(marks)
    assert found["eval_latency_avg"] == pytest.approx(51)
    assert found["eval_latency_p90"] == pytest.approx(91)
    assert found["eval_latency_p95"] == pytest.approx(96)
    assert found["eval_latency_p99"] == pytest.approx(100)


def kinds(lines: list[str]) -> list[str]:
    return [found[1] for line in lines if (found := re.search(r"event_type:(\w+)", line))]


EPOCH = ["epoch_start", "epoch_stop", "eval_start", "eval_stop"]


def test_events_prints_the_ports_timing_log(printed: Printed, run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE_INDEX", "3")
    lines = printed("events")
    path = re.escape(str(run.path))
    event = rf"namespace:work 3,time_ts:\d{{13}},event_type:\w+, root_dir:{path}"
    value = rf"namespace:work 3,time_ts:\d{{13}}, key:\w+,value:{NUMBER},\w+:\d+,root_dir:{path}"
    assert len(matching(lines, event)) + len(matching(lines, value)) == len(lines)
    begin = ["benchmark_start", "pre_process_event", "init_start", "init_end"]
    assert kinds(lines) == [*begin, *EPOCH * 2, "benchmark_stop"]
    assert sum("key:global_batch_size,value:8,num_train_epochs:2" in line for line in lines) == 1


def test_events_have_the_losses_and_what_evaluations_found(printed: Printed) -> None:
    lines = printed("events")
    for step in (5, 10):
        for key in ("loss", "eval_accuracy", "eval_accuracy_top5", "eval_loss"):
            assert len([line for line in lines if re.search(rf"key:{key},value:{NUMBER},step:{step},", line)]) == 1, key


def test_events_are_alone_in_a_file_of_their_own(printed: Printed, run: RunDir) -> None:
    lines = printed("events")
    assert (run.path / "event_log.txt").read_text().splitlines() == lines
    printed("tf")
    assert (run.path / "event_log.txt").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({}, "0"),
        ({"LOCAL_RANK": "5"}, "5"),
        ({"LOCAL_RANK": "5", "DEVICE_ID": "6"}, "6"),
        ({"DEVICE_ID": "6", "DEVICE_INDEX": "7"}, "7"),
    ],
)
def test_a_card_is_named_by_its_number(variables: dict[str, str], number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEVICE_INDEX", "DEVICE_ID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_device_index() == number


@pytest.mark.parametrize("ending", ["threshold", "middle of an epoch", "end of an epoch"])
def test_every_epoch_that_starts_also_stops(printed: Printed, ending: str) -> None:
    recipe = replace(RECIPE, epochs=4, evaluation=Evaluation(stop_threshold=0.01 if ending == "threshold" else 0.0))
    step = {"threshold": 100, "middle of an epoch": 7, "end of an epoch": 10}[ending]
    stop = After(step, lambda training: training.request_stop("enough"))
    found = kinds(printed("events", recipe, StopAtThreshold(), stop))
    epochs = [kind for kind in found[4:] if kind.startswith("epoch")]
    count = {"threshold": 1, "middle of an epoch": 2, "end of an epoch": 3}[ending]
    assert epochs == ["epoch_start", "epoch_stop"] * count
    assert found[-1] == "benchmark_stop"


def test_mindspore_prints_the_books_lines(printed: Printed, run: RunDir) -> None:
    lines = printed("mindspore")
    path = re.escape(str(run.checkpoints))
    assert len(lines) == 4
    assert re.fullmatch(rf"epoch: 1 step: 5, loss is {NUMBER}", lines[0])
    assert re.fullmatch(rf"result: \{{'acc': {NUMBER}\}} ckpt={path}/step-5", lines[1])
    assert re.fullmatch(rf"epoch: 2 step: 5, loss is {NUMBER}", lines[2])


def test_mindspore_counts_steps_from_one_in_every_epoch_and_prints_the_last_loss(collect_lines: CollectLines) -> None:
    training = SimpleNamespace(progress=SimpleNamespace(run_length=SimpleNamespace(steps_per_epoch=195)))

    def log(lines: Any) -> None:
        for step in (195, 196, 390):
            lines.log(training, replace(SEED, step=step))

    assert collect_lines("mindspore", log) == [
        "epoch: 1 step: 195, loss is 6.034",
        "epoch: 2 step: 1, loss is 6.034",
        "epoch: 2 step: 195, loss is 6.034",
    ]
