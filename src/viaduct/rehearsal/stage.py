"""Setup of a rehearsal's process: the stand-in, seeds, and the step counter."""

from __future__ import annotations

import importlib
import importlib.metadata
import random
import re
import warnings
from pathlib import Path
from typing import Protocol

from viaduct.errors import BadValue
from viaduct.rehearsal import guard, printing
from viaduct.rehearsal.plan import Plan, current_rank

FIRST_TORCH = (2, 13)  # the first release in which a device can be registered from Python (torch._C._acc)
MNIST_MODULE = "tensorflow.examples.tutorials.mnist.input_data"


class StepCounter(Protocol):
    """Counter of steps; it writes the observations (losses, gradients, weights) when the script is over."""

    @property
    def step_count(self) -> int: ...

    @property
    def stop_requested_at(self) -> float | None:
        """Return the time of the first request to stop (time.monotonic()); None if there was none."""

    def write_observations(self) -> None:
        """Write the present observations; called before os._exit ends the process."""

    def finish(self, ran_to_end: bool) -> None:
        """Write the observations at the end. `ran_to_end`: nothing stopped the script, and its exit code is 0."""


def install_stage(plan: Plan, started_by_viaduct: bool) -> StepCounter:
    """Install the stand-in and the step counter before the script's first line; return the counter.

    `started_by_viaduct` is False in processes that the script starts.
    """
    printing.install(plan)  # records the script's output; does nothing unless two source trees are compared
    if plan.framework == "tf1":
        return install_tf1_stage(plan, started_by_viaduct)
    counter = install_torch_stage(plan, started_by_viaduct)
    if (seed := seed_of_rank(plan)) is not None:
        set_seeds(seed)
    return counter


def set_seeds(seed: int) -> None:
    """Seed Python, NumPy and torch, before the script's first line; seeds that the script sets itself replace them.

    The TensorFlow stage seeds its graphs itself (`tf1_stage/seeding.py`).
    """
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_of_rank(plan: Plan) -> int | None:
    """Return the seed of this rank; the seeds of ranks differ, so that a missing broadcast shows."""
    return None if plan.seed is None else plan.seed + current_rank()


def install_torch_stage(plan: Plan, started_by_viaduct: bool) -> StepCounter:
    refuse_old_torch()
    from viaduct.rehearsal import torch_stage
    from viaduct.rehearsal.counting import TorchStepCounter

    if plan.platform == "original":
        torch_stage.install_cuda_as_cpu(plan.ranks)
    else:
        torch_stage.install(plan.platform, plan.ranks)
    guard.add_audit_to_torch_save()  # otherwise the guard of the user's files would not see what torch.save writes
    if plan.fake_data:
        from viaduct.rehearsal.fake_data import torchvision_sets

        torchvision_sets.install()
    counter = TorchStepCounter(plan, started_by_viaduct)
    counter.start()
    return counter


def refuse_old_torch() -> None:
    """Raise BadValue if the installed torch is too old for a rehearsal."""
    version = find_torch_version()
    if not is_new_enough(version):
        raise BadValue(
            f"the rehearsal of a PyTorch script needs torch 2.13 or later; this is torch {version}.",
            "Install torch>=2.13 in an environment of its own; with this one migrate, train, launch and compare work.",
        )


def is_new_enough(version: str) -> bool:
    """Return True if this version of torch can register a device from Python."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= FIRST_TORCH


def find_torch_version() -> str:
    """Return the version of torch, if possible without importing it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # a source tree of torch, without installed metadata
        import torch

        return torch.__version__


def install_tf1_stage(plan: Plan, started_by_viaduct: bool) -> StepCounter:
    from viaduct.rehearsal import tf1_stage
    from viaduct.rehearsal.counting_tf1 import GraphStepCounter

    tf1_stage.require_tensorflow()
    from tensorflow.python.util import deprecation

    # Deprecation hints of TensorFlow 2.15, which TensorFlow 1.15 on the card does not print.
    deprecation._PRINT_DEPRECATION_WARNINGS = False
    warnings.filterwarnings("ignore", message=r"`tf\.(layers|keras)\..*` is deprecated")
    tf1_stage.install(plan.platform, seed=seed_of_rank(plan))
    if plan.join_ranks:  # the ranks of a script for one device train together
        from viaduct.rehearsal.tf1_stage import joining

        joining.install()
    if plan.fake_data:
        from viaduct.rehearsal.fake_data import keras_sets, tf_files

        keras_sets.install()
        tf_files.install(Path(plan.record_folder) / "fake")
        # tf1_stage provides this module, which TensorFlow 2 does not have.
        importlib.import_module(MNIST_MODULE).makes_up_missing = True  # type: ignore[attr-defined]
    return GraphStepCounter(plan, started_by_viaduct)
