"""Sets the stage in this process: the stand-in of the card, seeds, and who counts the steps."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import warnings
from pathlib import Path
from typing import Protocol

from viaduct.errors import BadValue
from viaduct.rehearsal import guard, printing, seeds
from viaduct.rehearsal.plan import Plan, rank

TORCH_SINCE = (2, 13)
"""The first release in which a device can be registered from Python (torch._C._acc with hooks and a guard)."""


MNIST = "tensorflow.examples.tutorials.mnist.input_data"


class Attendance(Protocol):
    """Whoever counts steps: how many were taken, and what to keep when the script is over."""

    @property
    def taken(self) -> int: ...

    @property
    def asked(self) -> float | None:
        """When the script was first asked to stop, its steps taken: time.monotonic()."""

    def keep(self) -> None:
        """Write what was seen up to the stop."""

    def finish(self, complete: bool) -> None:
        """`complete`: the script has run to its own end, and well."""


def set_stage(plan: Plan, ours: bool) -> Attendance:
    """Everything a process of the rehearsal needs before the script's first line."""
    printing.install(plan)
    if plan.stage == "tf1":
        return set_tf1(plan, ours)
    attendance = set_torch(plan, ours)
    seeds.plant(own_seed(plan))
    return attendance


def own_seed(plan: Plan) -> int | None:
    """Ranks draw different numbers, as they do without a seed: so a broadcast that is missing shows."""
    return None if plan.seed is None else plan.seed + rank()


def set_torch(plan: Plan, ours: bool) -> Attendance:
    refuse_old_torch()
    from viaduct.rehearsal import torch_stage
    from viaduct.rehearsal.counting import Counter

    if plan.on == "original":
        torch_stage.install_cuda_as_cpu(cards=plan.ranks)
    else:
        torch_stage.install(plan.on, cards=plan.ranks)
    guard.watch_torch_save()
    if plan.fake_data:
        from viaduct.rehearsal.fake_data import torchvision_sets

        torchvision_sets.install()
    counter = Counter(plan, ours)
    counter.start()
    return counter


def refuse_old_torch() -> None:
    """Raise BadValue where the installed torch is too old for a rehearsal; torch itself is not imported for it."""
    version = find_torch_version()
    if not is_new_enough(version):
        raise BadValue(
            f"the rehearsal of a PyTorch script needs torch 2.13 or later; this is torch {version}.",
            "Install torch>=2.13 in an environment of its own; with this one migrate, train, launch and compare work.",
        )


def is_new_enough(torch: str) -> bool:
    return tuple(int(number) for number in re.findall(r"\d+", torch)[:2]) >= TORCH_SINCE


def find_torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # built from source, beside its package
        import torch

        return torch.__version__


def set_tf1(plan: Plan, ours: bool) -> Attendance:
    from viaduct.rehearsal import tf1_stage
    from viaduct.rehearsal.counting_tf1 import GraphCounter

    tf1_stage.need_tensorflow()
    quiet_about_successors()
    tf1_stage.install(plan.on, seed=own_seed(plan))
    if plan.joined:
        from viaduct.rehearsal.tf1_stage import joining

        joining.install()
    if plan.fake_data:
        from viaduct.rehearsal.fake_data import keras_sets, tf_files

        keras_sets.install()
        tf_files.install(Path(plan.record) / "fake")
        importlib.import_module(MNIST).makes_up_missing = True  # type: ignore[attr-defined]
    return GraphCounter(plan, ours)


def quiet_about_successors() -> None:
    """TensorFlow 2.15 tells of every function of TensorFlow 1 what replaces it; on the card 1.15 runs, and does not."""
    from tensorflow.python.util import deprecation

    deprecation._PRINT_DEPRECATION_WARNINGS = False
    warnings.filterwarnings("ignore", message=r"`tf\.(layers|keras)\..*` is deprecated")
