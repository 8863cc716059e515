"""Sinks: the same numbers, told less often; and what cannot be captured runs as ever."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.sinks import BASE, CLOSE, FP16, RECIPES, list_losses, list_optimizer_state, train_in_sinks
from training.test_loop import Flag, resume_training
from training.tiny_runs import (
    PER_EPOCH,
    Recorder,
    build_normed_network,
    build_training,
    change_part,
    copy_weights,
    train_recipe,
)
from viaduct.data.batches import Batch
from viaduct.devices import cpu
from viaduct.errors import BadData, BadValue
from viaduct.recipes import Recipe
from viaduct.training import sink
from viaduct.training.callbacks import (
    Callback,
    Checkpointing,
    MetricsFile,
    NanStop,
    ProgressBar,
    StepMark,
    StopAtThreshold,
)
from viaduct.training.checkpoint import list_checkpoints
from viaduct.training.loop import Training
from viaduct.training.observing import TensorBoard
from viaduct.training.rundir import RunDir
from viaduct.training.sink import BatchFeed, Work, capture_graph, describe_sink


def saved_bytes(run: RunDir) -> dict[str, bytes]:
    """The weights of every checkpoint."""
    files = [path for saved in list_checkpoints(run.checkpoints) for path in sorted(saved.path.glob("*.safetensors"))]
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def train_and_record(recipe: Recipe, run: RunDir, **more: Any) -> tuple[Training, Recorder]:
    recorder = Recorder()
    return train_recipe(recipe, run, recorder, Checkpointing(), **more), recorder


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_in_sinks_is_bitwise_the_run_without(tmp_path: Any, name: str) -> None:
    recipe = change_part(RECIPES[name], "checkpoint", every_steps=4, keep=9)
    plain, alone = train_and_record(recipe, RunDir(tmp_path / "plain"))
    sunk, sink = train_and_record(replace(recipe, sink=3), RunDir(tmp_path / "sunk"))
    assert list_losses(sink) == list_losses(alone)
    assert saved_bytes(sunk.run) == saved_bytes(plain.run)
    assert all(
        equal(first, second)
        for first, second in zip(list_optimizer_state(sunk), list_optimizer_state(plain), strict=True)
    )
    assert sunk.scale.get_state() == plain.scale.get_state()
    assert [score.predictions for score in sink.scores] == [score.predictions for score in alone.scores]


def test_no_callback_is_called_for_a_step_within_a_sink(run: RunDir) -> None:
    recipe = change_part(replace(BASE, sink=4), "checkpoint", every_steps=7)
    _, observer = train_and_record(recipe, run)
    ends = [4, 5, 7, 8, 10, 12, 14, 15]  # multiples of 4, evaluations (5), checkpoints (7), the end
    assert observer.at("step") == observer.at("log") == ends
    assert observer.at("evaluation") == [5, 10, 15]
    assert [log.step for log in observer.logs] == ends
    assert {7, 14, 15} <= set(observer.at("checkpoint"))


class StopsAt(Callback):
    """Asks for the end as soon as it hears of that step or a later one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def step(self, training: Training) -> None:
        if training.step >= self.number:
            training.request_stop("enough")


def test_a_stop_is_requested_and_takes_place_at_the_end_of_a_sink(run: RunDir) -> None:
    recorder = Recorder()
    done = train_recipe(replace(BASE, sink=4), run, StopsAt(6), recorder, Checkpointing())
    assert done.step == 8  # 4, 5 (an evaluation), 8
    assert done.progress.stop_reason == "enough"
    assert recorder.at("evaluation") == [5, 8]
    assert recorder.at("checkpoint")[-1] == 8


def test_a_sink_may_be_longer_than_an_epoch(run: RunDir) -> None:
    recipe = change_part(BASE, "evaluation", every_epochs=0)
    _, alone = train_and_record(recipe, run)
    _, observer = train_and_record(replace(recipe, sink=100), run)
    assert observer.at("log") == [3 * PER_EPOCH]
    assert list_losses(observer) == list_losses(alone)


@pytest.mark.parametrize("stop", [4, 7])
@pytest.mark.parametrize("name", ["averaged weights", "mixup", "dropout", "loss scale", "thor"])
def test_a_run_resumed_between_and_within_sinks_is_bitwise_the_same(tmp_path: Any, name: str, stop: int) -> None:
    recipe = replace(RECIPES[name], sink=4)
    uninterrupted, _ = train_and_record(recipe, RunDir(tmp_path / "whole"))
    flag, run = Flag(), RunDir(tmp_path / "parts")

    def is_interrupted() -> bool:
        return flag.raised or (first.step >= stop)

    first = build_training(recipe, run, Checkpointing(), read_signal=is_interrupted)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    saved = list_checkpoints(run.checkpoints)[-1]
    assert saved.step == stop
    for length in (4, 0, 3):  # how a run is sunk may change
        again = resume_training(replace(recipe, sink=length), run, saved)
        assert all(
            torch.equal(tensor, copy_weights(uninterrupted)[name]) for name, tensor in copy_weights(again).items()
        )


def test_a_bad_loss_in_a_sink_is_named_with_its_step_and_not_saved(run: RunDir) -> None:
    from viaduct.errors import Diverged
    from viaduct.training.callbacks import NanStop

    def spoil_third_loss(logits: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
        return nn.functional.cross_entropy(logits, labels) * (float("nan") if len(calls) == 3 else 1.0)

    calls: list[int] = []
    with pytest.raises(Diverged, match="became nan at step 3"):
        train_recipe(replace(BASE, loss=spoil_third_loss, sink=5), run, NanStop(), Checkpointing())
    assert not list_checkpoints(run.checkpoints)


def test_a_sink_below_zero_is_refused() -> None:
    with pytest.raises(BadValue, match="sink is -1; it must be 0 or more, or auto"):
        replace(BASE, sink=-1)


# What the device would do, done here: the step that is captured runs on the CPU, again and again.


def test_a_step_that_cannot_be_captured_is_the_hosts_and_says_so(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(work: Work) -> Work:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    recipe, observer, alone = replace(BASE, sink=4), Recorder(), Recorder()
    sunk = train_in_sinks(recipe, RunDir(tmp_path / "sunk"), fail, observer)
    plain = train_recipe(replace(recipe, sink=0), RunDir(tmp_path / "plain"), alone)
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **CLOSE)
    assert [log.step for log in observer.logs] == [4, 5, 8, 10, 12, 15]
    assert sunk.step == plain.step
    lines = [line for line in capsys.readouterr().err.splitlines() if "--sink" in line]
    assert lines == [
        "--sink 4: the host drives each step, because a step of it cannot be captured "
        "(RuntimeError: operation not permitted when stream is capturing)."
    ]


class Chance:
    """A card's generator, as far as a capture touches it."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.state: Any = None

    def get_state(self) -> Tensor:
        return torch.Generator().manual_seed(5).get_state()

    def graphsafe_set_state(self, other: Any) -> None:
        self.state = other


class Vendor:
    """torch.npu, as far as a capture touches it."""

    def __init__(self) -> None:
        self.default_generators = (Chance(),)
        self.stream = "usual"
        self.collecting: bool | None = None

    def current_device(self) -> int:
        return 0

    def current_stream(self) -> str:
        return self.stream

    def set_stream(self, stream: str) -> None:
        self.stream = stream

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.stream = "capture"
        self.collecting = gc.isenabled()
        yield  # after an error torch leaves its own stream in place
        self.stream = "usual"


class Cards:
    """A device whose graphs can be replayed."""

    NAME = "npu"

    def get_graph_class(self) -> type:
        return type("NPUGraph", (), {"replay": lambda self: None})


def test_a_capture_that_fails_leaves_stream_random_numbers_and_garbage_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vendor = Vendor()
    monkeypatch.setattr(torch, "npu", vendor, raising=False)

    def fail() -> None:
        raise RuntimeError("operation not permitted")

    device: Any = Cards()
    with pytest.raises(RuntimeError, match="not permitted"):
        capture_graph(device, fail)
    assert vendor.stream == "usual"
    assert gc.isenabled()
    drawn = torch.rand(3, generator=vendor.default_generators[0].state)
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_no_older_graph_is_collected_while_another_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Vendor()
    monkeypatch.setattr(torch, "npu", vendor, raising=False)
    device: Any = Cards()
    capture_graph(device, lambda: None)
    assert vendor.collecting is False
    assert gc.isenabled()
    assert vendor.default_generators[0].state is None  # nothing went wrong: its state is its own


class Watcher(Callback):
    def forward(self, training: Training, labels: Tensor, loss: Tensor) -> None: ...


class Schooled(nn.Linear):
    """Told its progress, and keeps it where no graph would find it."""

    def set_progress(self, share: float) -> None:
        self.share = share


OBSTACLES: dict[str, tuple[Recipe, tuple[Callback, ...], str]] = {
    "a callback": (BASE, (Watcher(),), "Watcher observes every forward pass"),
    "an optimizer": (
        replace(BASE, optimizer=lambda found: torch.optim.RMSprop(found, lr=0.01)),
        (),
        "RMSprop may ask the host for its learning rate",
    ),
    "a skip": (
        replace(RECIPES["rmsprop"], precision=FP16),
        (),
        "TfRmsProp cannot skip a step by itself, which fp16 needs",
    ),
    "progress": (
        replace(BASE, model=lambda classes: Schooled(3, classes)),
        (),
        "`set_progress` is called in every step",
    ),
}


def explain_sink(training: Training) -> str | None:
    return describe_sink(training.sink_obstacle, training.recipe.sink, training.device)


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_obstacle_to_sinks_is_named(run: RunDir, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, callbacks, reason = OBSTACLES[name]
    usual = build_training(replace(recipe, sink=4), run, *callbacks)
    assert usual.sink is not None
    assert explain_sink(usual) == "--sink 4: the host drives each step, because cpu captures no graphs."
    monkeypatch.setattr(cpu, "get_graph_class", lambda: object)
    able = build_training(replace(recipe, sink=4), run, *callbacks)
    assert able.sink is not None
    assert reason in str(explain_sink(able))


# Sinks by themselves: `--sink auto`, the default.

AUTO = change_part(replace(BASE, sink="auto"), "log", every_steps=4)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor says that it can capture, and what is captured runs again when it is replayed."""
    monkeypatch.setattr(cpu, "get_graph_class", lambda: object)
    monkeypatch.setattr(sink, "capture_graph", lambda device, work: work)


class Quiet(Recorder):
    """Does not need to hear of each step."""

    every_step = False


def test_the_cpu_has_no_sinks_with_sink_auto_and_prints_nothing(run: RunDir) -> None:
    plain = build_training(AUTO, run)
    assert plain.sink is None
    assert explain_sink(plain) is None
    assert plain.sink_obstacle == "cpu captures no graphs"


@pytest.mark.usefixtures("capturing")
def test_a_card_has_sinks_with_sink_auto_and_logs_as_often_as_without(tmp_path: Any) -> None:
    alone, observer = Quiet(), Quiet()
    plain = train_recipe(replace(AUTO, sink=0), RunDir(tmp_path / "plain"), alone)
    sunk = train_recipe(AUTO, RunDir(tmp_path / "sunk"), observer)
    assert sunk.sink is not None
    assert sunk.sink.replay is not None
    assert [log.step for log in observer.logs] == [log.step for log in alone.logs] == [4, 5, 8, 10, 12, 15]
    assert observer.at("step") == [4, 5, 8, 10, 12, 15]
    torch.testing.assert_close(list_losses(observer), list_losses(alone), **CLOSE)
    for key, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(sunk)[key], tensor, **CLOSE)


@pytest.mark.usefixtures("capturing")
def test_the_length_of_automatic_sinks_follows_the_time_of_a_step(run: RunDir) -> None:
    sink = build_training(change_part(AUTO, "log", every_steps=100), run).sink
    assert sink is not None
    assert (sink.length, sink.longest) == (10, 100)
    for seconds, steps in ((0.029, 34), (0.001, 100), (0.4, 2), (7.0, 1)):
        sink.adapt_length(seconds)
        assert sink.length == steps


@pytest.mark.usefixtures("capturing")
def test_a_callback_that_defines_step_is_called_after_each_step(run: RunDir) -> None:
    observer = Recorder()
    done = train_recipe(AUTO, run, observer)
    assert observer.at("step") == list(range(1, 16))
    assert done.sink is None
    assert "Recorder.step is called after each" in str(explain_sink(done))


@pytest.mark.usefixtures("capturing")
def test_checkpoints_and_a_progress_bar_allow_sinks(run: RunDir) -> None:
    callbacks = [Checkpointing(), StepMark(), MetricsFile(), TensorBoard(), NanStop(), StopAtThreshold(), ProgressBar()]
    assert build_training(AUTO, run, *callbacks).sink is not None


class Counting(nn.Sequential):
    """Counts its steps in Python, which a replay does not run."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__(*parts)
        self.calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input) * (1 + 0.1 * (self.calls % 3))


class Drawing(nn.Sequential):
    """Draws from Python's random numbers."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * random.uniform(0.9, 1.1)


class Collecting(nn.Sequential):
    """Keeps something of every step in a list."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__(*parts)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, input: Tensor) -> Tensor:
        self.seen.append(tuple(input.shape))
        return super().forward(input)


@pytest.mark.usefixtures("capturing")
@pytest.mark.parametrize(
    ("network", "named"),
    [(Counting, "network.calls"), (Drawing, "Python's random numbers"), (Collecting, "the size of network.seen")],
)
def test_a_network_that_lives_on_the_host_is_not_captured(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], network: Callable[..., nn.Module], named: str
) -> None:
    def build(classes: int) -> nn.Module:
        return network(*build_normed_network(classes).children())

    recipe = replace(AUTO, model=build)
    plain = train_recipe(replace(recipe, sink=0), RunDir(tmp_path / "plain"))
    sunk = train_recipe(recipe, RunDir(tmp_path / "sunk"))
    assert sunk.sink is not None
    assert sunk.sink.replay is None
    assert capsys.readouterr().err.count(f"because each step changes {named} on the host") == 1
    for key, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(sunk)[key], tensor, **CLOSE)


@pytest.mark.usefixtures("capturing")
@pytest.mark.parametrize("sink", [1, 2, 3, 4])
def test_no_batch_is_used_twice_where_the_last_warm_up_step_ends_a_sink(tmp_path: Any, sink: int) -> None:
    recipe = replace(BASE, model=lambda classes: Counting(*build_normed_network(classes).children()))
    plain = train_recipe(recipe, RunDir(tmp_path / "plain"))
    sunk = train_recipe(replace(recipe, sink=sink), RunDir(tmp_path / "sunk"))
    assert sunk.step == plain.step
    for key, tensor in copy_weights(plain).items():
        torch.testing.assert_close(copy_weights(sunk)[key], tensor, **CLOSE)


@pytest.mark.usefixtures("capturing")
def test_what_was_learned_before_an_image_that_cannot_be_read_is_kept(run: RunDir) -> None:
    observer, sunk = Quiet(), build_training(AUTO, run)
    sunk.callbacks.append(observer)

    def broken() -> Iterator[Batch]:
        for number, batch in enumerate(batches):
            if number == 7:
                raise BadData("image 7 cannot be decoded.")
            yield batch

    batches = sunk.iterate_batches()
    sunk.iterate_batches = broken  # type: ignore[method-assign]
    with sunk.train_batches, sunk.validation:
        with pytest.raises(BadData, match="image 7"):
            sunk.fit()
        assert sunk.step == 7
        sunk.log()
        assert len(list_losses(observer)) == 7
        saved = sunk.save()
    assert saved.step == 7


@pytest.mark.usefixtures("capturing")
@pytest.mark.parametrize("stop", [1, 4, 7])
@pytest.mark.parametrize("name", ["sgd", "averaged weights", "mixup", "dropout", "adamw", "rmsprop", "thor"])
def test_an_interrupted_run_with_captured_steps_ends_with_the_same_bits(tmp_path: Any, name: str, stop: int) -> None:
    recipe = change_part(replace(RECIPES[name], sink="auto"), "log", every_steps=4)
    uninterrupted = train_recipe(recipe, RunDir(tmp_path / "whole"), Checkpointing())
    run = RunDir(tmp_path / "parts")
    first = build_training(recipe, run, Checkpointing(), read_signal=lambda: first.step >= stop)
    with first.train_batches, first.validation:
        assert first.fit() == "interrupted"
    saved = list_checkpoints(run.checkpoints)[-1]
    assert saved.step == stop
    again = resume_training(recipe, run, saved)
    assert all(torch.equal(tensor, copy_weights(uninterrupted)[key]) for key, tensor in copy_weights(again).items())


class Card:
    """Streams and events of a device that writes down what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.current = "usual"

    def Stream(self) -> Any:
        return CardStream(self, "side")

    def current_stream(self) -> Any:
        return CardStream(self, self.current)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def Event(self) -> Any:
        return CardEvent(self)


class CardStream:
    def __init__(self, card: Card, name: str) -> None:
        self.card, self.name = card, name

    def wait_event(self, event: Any) -> None:
        self.card.told.append(f"{self.name} waits for {event.after}")


class CardEvent:
    def __init__(self, card: Card) -> None:
        self.card = card

    def record(self) -> None:
        self.after = f"{self.card.current}: {self.card.told[-1]}"

    def synchronize(self) -> None:
        self.card.told.append(f"the host waits for {self.after}")


class Parcel:
    """A tensor that knows who reads it."""

    def __init__(self, card: Card) -> None:
        self.card = card

    def record_stream(self, stream: CardStream) -> None:
        self.card.told.append(f"kept for {stream.name}")


def test_a_batch_is_made_beside_the_step_and_read_after_it_is_there() -> None:
    card = Card()

    def make_batches() -> Iterator[Any]:
        for number in count():
            card.told.append(f"batch {number} on {card.current}")
            yield Batch(Parcel(card), Parcel(card), None, Parcel(card))  # type: ignore[arg-type]

    feed, batches = BatchFeed("cpu"), make_batches()
    feed.vendor, feed.side_stream = card, card.Stream()
    for number in range(4):
        feed.take_batch(batches)
        card.told.append(f"step {number}")
        feed.mark_step()
        feed.prepare_next(batches)
    assert card.told == [
        "batch 0 on usual",
        "step 0",
        "side waits for usual: batch 0 on usual",  # made of what the usual stream has put there, not after its step
        "batch 1 on side",
        "usual waits for side: batch 1 on side",
        "kept for usual",
        "kept for usual",
        "step 1",
        "the host waits for usual: step 0",  # never more than two steps ahead
        "batch 2 on side",
        "usual waits for side: batch 2 on side",
        "kept for usual",
        "kept for usual",
        "step 2",
        "the host waits for usual: step 1",
        "batch 3 on side",
        "usual waits for side: batch 3 on side",
        "kept for usual",
        "kept for usual",
        "step 3",
        "the host waits for usual: step 2",
        "batch 4 on side",
    ]
