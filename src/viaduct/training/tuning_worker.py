"""The tuner's worker process for a recipe: `python -m viaduct.training.tuning_worker FILE`.

FILE has the `RecipeJob` as JSON. Besides single operators the process measures whole training steps: which operators a
step has, its time with different numbers of threads, and its time without and with the choices of a bank (the selected
variants of its operators).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from viaduct import devices
from viaduct.data.batches import Batch
from viaduct.devices.timing import Clock, use_threads
from viaduct.kernels.choices import Key, record_launches
from viaduct.recipes import Thor
from viaduct.search_space import Parameter, Space
from viaduct.training.images import load_images
from viaduct.training.limits import explain_limits
from viaduct.training.loop import Training
from viaduct.training.networks import describe_model
from viaduct.training.profiled import RecipeJob, prepare_recipe
from viaduct.training.rundir import RunDir
from viaduct.tuning.applying import Call, apply_choices, observe_calls
from viaduct.tuning.bank import Choice
from viaduct.tuning.measuring import VariantTimer, take_turns_until_significant
from viaduct.tuning.operators import Work, kernel, list_kinds, optimizer
from viaduct.tuning.request_server import Answer, measure, serve
from viaduct.tuning.signature import THREADS, Signature

WARM_UP_STEPS, TIMED_STEPS = 2, 5
MIN_VERDICT_TURNS, MAX_VERDICT_TURNS = 9, 41  # a turn: a step without and one with the choices; fewer are no verdict


class RecipeStep:
    """A recipe's training, whose steps are taken one by one; it is built when it is first used."""

    def __init__(self, job: RecipeJob) -> None:
        self.job = job
        self.folder = tempfile.TemporaryDirectory(prefix="viaduct-tune-")

    @cached_property
    def training(self) -> Training:
        device, torch_device = devices.pick(self.job.device)
        recipe, _ = prepare_recipe(self.job, torch_device.type, 1)
        run = RunDir(Path(self.folder.name))
        with explain_limits(run, recipe):
            images = load_images(recipe.data, self.job.data)
            return Training(recipe, run, images, device, torch_device, callbacks=[])

    @cached_property
    def batches(self) -> Iterator[Batch]:
        return self.training.begin_training()

    @cached_property
    def calls(self) -> list[Call]:
        """Calls of tunable modules in a step; none if `find_module_obstacle` names a reason."""
        for _ in range(WARM_UP_STEPS):
            self.take_step()
        if find_module_obstacle(self.training):
            return []
        return observe_calls(self.training.computation.network, self.take_step)

    def take_step(self) -> None:
        with explain_limits(self.training.run, self.training.recipe):
            self.training.advance(self.batches)

    def count_launches(self) -> dict[Key, int]:
        """Return how often each of viaduct's tunable kernels is launched in a step."""
        if not self.training.computation.fused_count:
            return {}
        with record_launches() as launches:
            self.take_step()
        return {key: launches[key] for key in kernel.list_tunable(launches)}

    def observe(self, request: dict[str, Any]) -> Answer:
        """Return the operators of a step and its time."""
        calls, training = self.calls, self.training
        clock = Clock(training.device, training.torch_device.type)
        seconds = [clock.measure_seconds(self.take_step) for _ in range(TIMED_STEPS)]
        operators: dict[str, dict[str, Any]] = {}
        for call in calls:
            new = {"signature": call.signature.encode(), "names": [], "count": 0}
            row = operators.setdefault(call.signature.key, new)
            row["count"] += 1
            if call.name not in row["names"]:
                row["names"].append(call.name)
        for key, count in self.count_launches().items():
            signature = kernel.describe(key)
            operators[signature.key] = {"signature": signature.encode(), "names": [signature.key], "count": count}
        update = optimizer.describe(training.optimizer)
        if update is not None:
            operators[update.key] = {"signature": update.encode(), "names": ["optimizer"], "count": 1}
        return {
            "operators": list(operators.values()),
            "threads": make_step_signature(training, self.job.loaded.name).encode(),
            "device": training.torch_device.type,
            "step_us": 1e6 * median(seconds),
            "obstacle": find_module_obstacle(training),
            "mode": f"{training.precision_plan.compute}, {training.mode} mode",
            "batch": training.recipe.data.global_batch,
        }

    def judge(self, request: dict[str, Any]) -> Answer:
        """Measure the step without and with choices of the bank, in turns, within `request["seconds"]`."""
        training = self.training
        key = make_step_signature(training, self.job.loaded.name).key
        has_own_kernels = bool(training.computation.fused_count)
        applied = apply_choices(
            self.calls, training.optimizer, request["choices"], key, uses_own_kernels=has_own_kernels
        )

        def take_step(with_choices: bool) -> None:
            applied.switch(with_choices)
            self.take_step()

        clock = Clock(training.device, training.torch_device.type)
        works = {"without": partial(take_step, False), "with": partial(take_step, True)}
        try:
            times = take_turns_until_significant(
                works, clock, ("with", "without"), MIN_VERDICT_TURNS, MAX_VERDICT_TURNS, float(request["seconds"])
            )
        finally:
            applied.remove()
        return {
            "without_us": times.median_us("without"),
            "with_us": times.median_us("with"),
            "ratio": times.ratio("with", "without"),
            "is_faster": times.is_faster("with", "without"),
            "turns": len(times.times_us["with"]),
            "others": times.other_load,
            "applied": list(applied.choices),
            "line": applied.describe(),
        }


class ThreadCounts:
    """The number of threads of the whole step, tuned like an operator: a kind as in `tuning/operators/`."""

    KIND = THREADS
    MIN_ERROR = 0.02  # this error of the loss is always tolerated: the number of threads changes the order of sums

    def __init__(self, step: RecipeStep) -> None:
        self.step = step

    def make_space(self, signature: Signature, device: str, allow_compiled: bool = False) -> Space:
        return make_threads_space(torch.get_num_threads())

    def make_work(self, signature: Signature, point: Choice, device: str, exact: bool = False) -> Work:
        """Return a step with the threads of `point`, and its loss; `exact`: the loss with the default number."""
        chosen, default = int(point["threads"]), torch.get_num_threads()

        def run() -> None:
            with use_threads(chosen):
                self.step.take_step()

        def read_values() -> list[tuple[str, torch.Tensor]]:
            training, step = self.step.training, self.step.training.train_step
            batch = next(training.train_batches.epoch(0, start=0))
            torch.manual_seed(1)
            try:
                with use_threads(default if exact else chosen):
                    loss, _ = step.run_passes(*step.mix_batch(batch, step.draw_mixing_weights()), training.scale.value)
            finally:
                training.optimizer.zero_grad(set_to_none=True)
            return [("loss", loss.detach().double())]

        return Work(run, read_values)


def make_threads_space(default: int) -> Space:
    """Return the space of thread counts: powers of 2 up to the default, and the default."""
    values = sorted({*(2**power for power in range(default.bit_length())), default})
    return Space([Parameter("threads", tuple(values))], default={"threads": default})


def make_step_signature(training: Training, recipe_name: str) -> Signature:
    """Return the signature of a recipe's whole step: the facts by which a bank finds the verdict about it."""
    recipe = training.recipe
    parameters = sum(parameter.numel() for parameter in training.train_step.parameters)
    data = recipe.data
    return Signature.of(
        THREADS,
        shown=f"step of {recipe_name}, batch {data.global_batch}, {training.precision_plan.compute}",
        recipe=recipe_name,
        model=describe_model(recipe),
        batch=data.global_batch,
        size=data.size,
        accumulate=recipe.accumulate,
        parameters=parameters,
        compute=training.precision_plan.compute,
        mode=training.mode,
    )


def find_module_obstacle(training: Training) -> str | None:
    """Return the reason why convolutions and linear layers of this run must keep their default, or None."""
    if training.computation.compilation.outcome != "off":
        return "the network is compiled, and modules of compiled code are not replaced"
    if isinstance(training.recipe.optimizer, Thor):
        return "THOR observes the convolutions themselves"
    if training.needs_every_step:
        return "a dump or another callback observes every operator of the network"
    if training.group.ranks > 1:
        return "choices are measured with one rank"
    return None


def main() -> None:
    """Serve requests of the tuner until it closes the connection."""
    job = RecipeJob.decode(Path(sys.argv[1]).read_text())
    _, torch_device = devices.pick(job.device)
    step = RecipeStep(job)
    kinds = {**list_kinds(), THREADS: ThreadCounts(step)}
    timer = VariantTimer(torch_device.type, kinds)
    serve({"measure": partial(measure, timer), "observe": step.observe, "judge": step.judge})
    sys.stdout.flush()
    os._exit(0)  # loader threads are not waited for


if __name__ == "__main__":
    main()
