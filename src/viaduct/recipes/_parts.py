"""What a recipe is made of: typed, frozen parts that know neither paths nor devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from viaduct.data.source import Source
from viaduct.errors import BadValue


def require(ok: bool, what: str, value: object, want: str) -> None:
    if not ok:
        raise BadValue(f"{what} is {value!r}; it must be {want}.")


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum, as torch and TF1 compute it; weight decay is the L2 term of the loss."""

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    # What decays: every parameter; all but normalisation (TF official); convolution and dense weights only.
    decay: Literal["all", "not_norm", "weights"] = "not_norm"

    def __post_init__(self) -> None:
        require(self.lr >= 0, "optimizer.lr", self.lr, "0 or more")
        require(0 <= self.momentum < 1, "optimizer.momentum", self.momentum, "at least 0 and below 1")
        require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "0 or more")


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decay: Literal["all", "not_norm", "weights"] = "weights"

    def __post_init__(self) -> None:
        require(self.lr >= 0, "optimizer.lr", self.lr, "0 or more")
        require(all(0 <= beta < 1 for beta in self.betas), "optimizer.betas", self.betas, "at least 0, below 1")
        require(self.epsilon >= 0, "optimizer.epsilon", self.epsilon, "0 or more")
        require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "0 or more")


@dataclass(frozen=True)
class Constant:
    """The optimizer's learning rate from the first step to the last."""


@dataclass(frozen=True)
class Steps:
    """Linear warm-up, then a factor that changes at given epochs (TF official)."""

    boundaries: tuple[float, ...] = (30, 60, 80, 90)
    factors: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001, 1e-4)
    warmup_epochs: float = 5

    def __post_init__(self) -> None:
        count = len(self.factors)
        want = f"one more than the {len(self.boundaries)} boundaries"
        require(count == len(self.boundaries) + 1, "the number of schedule.factors", count, want)
        rising = all(a < b for a, b in zip(self.boundaries, self.boundaries[1:], strict=False))
        require(rising, "schedule.boundaries", self.boundaries, "rising")


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up, then half a cosine down to `floor` times the peak."""

    warmup_epochs: float = 5
    floor: float = 0.0


@dataclass(frozen=True)
class BookCosine:
    """Linear warm-up, then linear times cosine decay, as the book's listing computes it."""

    warmup_epochs: float = 5


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross entropy, averaged over the batch.

    What smoothing takes from the right class goes to all classes alike (`spread="all"`, TensorFlow's
    and torch's), or to the others only (`spread="others"`, the book's).
    """

    label_smoothing: float = 0.0
    spread: Literal["all", "others"] = "all"

    def __post_init__(self) -> None:
        require(0 <= self.label_smoothing < 1, "loss.label_smoothing", self.label_smoothing, "at least 0, below 1")


@dataclass(frozen=True)
class Precision:
    """What the network computes in, and how the loss is scaled.

    `auto` takes bf16 where the hardware computes in it, else fp32. The levels: O0 is fp32; O1 casts at
    use (autocast); O2 casts the network but not its batch norms; O3 casts everything; O1 to O3 take fp16
    where the device has it, else bf16, and O2 and O3 keep fp32 master weights for the optimizer.
    """

    compute: Literal["auto", "fp32", "bf16", "fp16", "O0", "O1", "O2", "O3"] = "auto"
    keep_batchnorm_fp32: bool | None = None  # None: as the level says
    loss_scale: float | Literal["auto", "dynamic"] = "auto"  # auto: dynamic for fp16, 1 otherwise
    scale_start: float = 65536.0
    scale_grow_every: int = 2000
    scale_shrink_after: int = 1

    def __post_init__(self) -> None:
        fixed = isinstance(self.loss_scale, float | int)
        require(not fixed or float(self.loss_scale) > 0, "precision.loss_scale", self.loss_scale, "above 0")
        require(self.scale_start > 0, "precision.scale_start", self.scale_start, "above 0")
        for name in ("scale_grow_every", "scale_shrink_after"):
            require(getattr(self, name) >= 1, f"precision.{name}", getattr(self, name), "1 or more")


@dataclass(frozen=True)
class Evaluation:
    """When the validation pictures are looked at."""

    every_epochs: float = 1  # the seeds' epochs_between_evals; 0: only at the end
    stop_threshold: float = 0.0  # stop once top-1 (0 to 1) reaches this; 0: never
    eval_only: bool = False

    def __post_init__(self) -> None:
        require(self.every_epochs >= 0, "evaluation.every_epochs", self.every_epochs, "0 or more")
        require(0 <= self.stop_threshold <= 1, "evaluation.stop_threshold", self.stop_threshold, "from 0 to 1")


@dataclass(frozen=True)
class Checkpoint:
    """When the run is saved and how much of the past is kept. The end of a run is always saved."""

    every_steps: int = 0  # 0: not by steps
    every_minutes: float = 10.0  # 0: not by time
    keep: int = 5
    keep_best: bool = True

    def __post_init__(self) -> None:
        require(self.every_steps >= 0, "checkpoint.every_steps", self.every_steps, "0 or more")
        require(self.every_minutes >= 0, "checkpoint.every_minutes", self.every_minutes, "0 or more")
        require(self.keep >= 1, "checkpoint.keep", self.keep, "1 or more")


@dataclass(frozen=True)
class Log:
    """What is printed while training."""

    every_steps: int = 100
    format: Literal["resnext", "tf", "dll", "events", "mindspore"] = "resnext"

    def __post_init__(self) -> None:
        require(self.every_steps >= 1, "log.every_steps", self.every_steps, "1 or more")


@dataclass(frozen=True)
class Top1:
    """The validation accuracy, in percent, that a run of this recipe should reach."""

    percent: float
    within: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """What to train and how. Batch sizes are global: one card or eight mean the same run.

    In a recipe of your own, `model`, `loss`, `optimizer` and `schedule` may be callables:
    model(classes) -> nn.Module; loss(logits, labels) -> scalar tensor; optimizer(parameters) ->
    torch.optim.Optimizer; schedule(step, steps) -> factor of the optimizer's learning rate.
    """

    model: str | Callable[..., Any]
    data: Source
    optimizer: Sgd | AdamW | Callable[..., Any] = field(default_factory=Sgd)
    schedule: Constant | Steps | Cosine | BookCosine | Callable[..., Any] = field(default_factory=Constant)
    loss: CrossEntropy | Callable[..., Any] = field(default_factory=CrossEntropy)
    epochs: float = 1
    steps: int = 0  # total optimizer steps; 0: as epochs says
    precision: Precision = field(default_factory=Precision)
    mode: Literal["eager", "graph"] = "eager"
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    log: Log = field(default_factory=Log)
    seed: int = 1
    accumulate: int = 1  # the global batch is worked through in this many parts
    clip_norm: float = 0.0  # 0: gradients are not clipped
    deterministic: bool = False
    callbacks: tuple[Any, ...] = ()
    expects: Top1 | None = None

    def __post_init__(self) -> None:
        require(self.epochs > 0, "epochs", self.epochs, "above 0")
        require(self.steps >= 0, "steps", self.steps, "0 or more")
        require(self.accumulate >= 1, "accumulate", self.accumulate, "1 or more")
        divides = self.data.global_batch % self.accumulate == 0
        want = f"a divisor of data.global_batch ({self.data.global_batch})"
        require(divides, "accumulate", self.accumulate, want)
        require(self.clip_norm >= 0, "clip_norm", self.clip_norm, "0 or more")
        require(0 <= self.seed < 2**63, "seed", self.seed, "at least 0 and below 2**63")
