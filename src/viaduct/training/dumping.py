"""Dumps the tensors of selected training steps into RUN/dump, for `viaduct compare`."""

from __future__ import annotations

import shlex

from torch import Tensor

from viaduct.comparison.dump import Dump, make_plan
from viaduct.comparison.dump_options import DumpOptions
from viaduct.errors import BadValue
from viaduct.recipes import Recipe, Thor
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training
from viaduct.training.summary import read_commit


def check_dump(options: DumpOptions, recipe: Recipe, ranks: int) -> None:
    """Raise BadValue if a run of this recipe cannot be dumped with these options."""
    make_plan(**vars(options))  # raises BadValue for an invalid value
    if recipe.mode != "graph":
        return
    eager = "Use --mode eager."
    if recipe.compile == "regional" or recipe.compile_parts:
        raise BadValue("a network that is compiled block by block cannot be dumped.", "Use --compile whole.")
    if options.level == "op":
        raise BadValue("in graph mode operators are fused: --dump-level op has nothing to show.", eager)
    if ranks > 1:
        raise BadValue("in graph mode several ranks cannot be dumped.", eager, "Or dump one rank.")
    if isinstance(recipe.optimizer, Thor):
        raise BadValue("THOR's refresh steps are not compiled: a dump in graph mode would lack them.", eager)


class Dumping(Callback):
    """Dumps the tensors of the network that computes, and the master weights, through a `comparison.dump.Dump`."""

    every_rank = True
    needs_every_step = True

    def __init__(self, options: DumpOptions) -> None:
        self.options = options
        self.dump: Dump | None = None

    def start(self, training: Training) -> None:
        computation = training.computation
        self.dump = Dump(
            computation.network,
            training.run.path / "dump",
            **vars(self.options),
            weights=computation.master,
            settings=describe_settings(training),
            rank=training.group.rank,
            ranks=training.group.ranks,
            first_step=training.step,
            evaluations=False,
            compiled=training.mode == "graph",
            force=True,  # RUN/dump may exist: a resumed run adds its steps
        )
        if training.mode == "graph":
            computation.run = self.dump.wrap_compiled(computation.run)
        self.dump.__enter__()

    def forward(self, training: Training, labels: Tensor, loss: Tensor) -> None:
        if self.dump is not None:
            self.dump.record("labels", labels)
            self.dump.record("loss", loss)

    def step(self, training: Training) -> None:
        if self.dump is not None:
            self.dump.step()

    def describe_outcome(self) -> list[str]:
        """Return lines for the user: the path of the dump and how to compare it, or why nothing was dumped."""
        if self.dump is None or not self.dump.written:
            return [f"Nothing was dumped: this session did not take step {self.options.steps}."]
        if misses := self.dump.plan.explain_no_match():
            return [f"Nothing was dumped: --dump-only: {misses}"]
        missing = self.dump.plan.steps.describe_missing(self.dump.written)
        lines = [f"Not dumped: step {missing}, which this session did not take."] if missing else []
        steps = ", ".join(str(step) for step in self.dump.written)
        lines.append(f"Dumped step {steps} to {self.dump.folder}. Compare it with the dump of another run:")
        return [*lines, f"  viaduct compare {shlex.quote(str(self.dump.folder))} OTHER_RUN/dump --explain"]

    def close(self) -> None:
        if self.dump is not None:
            self.dump.close()


def describe_settings(training: Training) -> dict[str, str]:
    """Return the settings that a comparison of dumps reads."""
    recipe = training.recipe
    return {
        "device": training.device.NAME,
        "device_name": training.device.describe_card(),
        "precision": training.precision_plan.name,
        "mode": training.mode,
        "deterministic": "yes" if recipe.deterministic else "no",
        "seed": str(recipe.seed),
        "commit": read_commit(),
    }
