"""Parts of a recipe: frozen dataclasses with typed fields, without paths and devices.

"The CANN book" is the training chapter of Huawei's book on CANN (docs/seeds.md, document 002); its listings are in
MindSpore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt

from viaduct.data.source import Count, PositiveCount, Source
from viaduct.errors import BadValue
from viaduct.run_files import EVALUATION_FIELDS
from viaduct.typed_fields import check_fields

__all__ = [
    "DEFAULT_FORMAT",
    "AdamW",
    "Amoebanet",
    "AmoebanetDecay",
    "BookCosine",
    "Checkpoint",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "Ema",
    "Evaluation",
    "Init",
    "Lars",
    "LarsForm",
    "LarsPolynomial",
    "Log",
    "LogFormat",
    "MindsporePolynomial",
    "Parallel",
    "Precision",
    "Recipe",
    "ResnextDecay",
    "RmsProp",
    "Sgd",
    "Steps",
    "Thor",
    "ThorDecay",
    "Top1",
    "V15Decay",
]

# Two published forms of LARS: tf.contrib's, and the one of ResNeXt in Ascend's model zoo.
LarsForm = Literal["contrib", "resnext"]
# The log lines of: ResNeXt in Ascend's model zoo, TensorFlow's Estimator, NVIDIA's DLLogger, AmoebaNet's Ascend port,
# MindSpore.
LogFormat = Literal["resnext", "tf", "dll", "events", "mindspore"]
DEFAULT_FORMAT: LogFormat = "resnext"
# Parameters with weight decay: all of them; all but those of norms; or all but those of norms and biases.
Decayed: TypeAlias = Literal["all", "not_norm", "weights"]

# Types of fields with bounds. `check_fields` raises an error that names the field, its value and the bound.
NotNegative: TypeAlias = Annotated[float, Ge(0)]
Positive: TypeAlias = Annotated[float, Gt(0)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1)]
PositiveShare: TypeAlias = Annotated[float, Gt(0), Le(1)]
Fraction: TypeAlias = Annotated[float, Ge(0), Lt(1)]


def require(is_valid: bool, name: str, value: object, expected: str) -> None:
    """Raise BadValue, which says what the value must be, unless `is_valid`."""
    if not is_valid:
        raise BadValue(f"{name} is {value!r}; it must be {expected}.")


def require_rising(values: tuple[float, ...], name: str = "schedule.boundaries") -> None:
    """Raise BadValue unless each number is larger than the one before it."""
    require(all(a < b for a, b in pairwise(values)), name, values, "rising")


def require_steps(boundaries: tuple[float, ...], factors: tuple[float, ...]) -> None:
    """Raise BadValue unless the boundaries rise and there is one factor more than boundaries."""
    count, expected = len(factors), f"one more than the {len(boundaries)} boundaries"
    require(count == len(boundaries) + 1, "the number of schedule.factors", count, expected)
    require_rising(boundaries)


@dataclass(frozen=True)
class Part:
    """Base of all parts of a recipe; it checks the types of the fields, then calls `_check`.

    `path` is the part's path in a recipe, for messages: `class Sgd(Part, path="optimizer")`.
    """

    path: ClassVar[str] = ""

    def __init_subclass__(cls, path: str | None = None) -> None:
        cls.path = cls.path if path is None else path

    def __post_init__(self) -> None:
        check_fields(self, self.path)
        self._check()

    def _check(self) -> None:
        """Raise BadValue for invalid values of the right type; subclasses override it."""


@dataclass(frozen=True)
class Sgd(Part, path="optimizer"):
    """SGD with momentum, as torch and TF1 compute it; weight decay is the L2 term of the loss."""

    lr: NotNegative = 0.1
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    decay: Decayed = "not_norm"


@dataclass(frozen=True)
class AdamW(Part, path="optimizer"):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    SLOTS: ClassVar[int] = 2  # fp32 numbers that the optimizer keeps for each parameter

    lr: NotNegative = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    epsilon: NotNegative = 1e-8
    weight_decay: NotNegative = 0.01
    decay: Decayed = "weights"


@dataclass(frozen=True)
class RmsProp(Part, path="optimizer"):
    """RMSProp as TF1 computes it: epsilon inside the root, square average from 1, lr inside the momentum.

    Weight decay is the L2 term of the loss, as with SGD. `square_decay`, `momentum` and `epsilon` have the defaults of
    AmoebaNet's reference.
    """

    SLOTS: ClassVar[int] = 2  # fp32 numbers that the optimizer keeps for each parameter

    lr: NotNegative = 0.1
    square_decay: Fraction = 0.9  # decay of the average of squared gradients; TensorFlow calls it `decay`
    momentum: Fraction = 0.9
    epsilon: NotNegative = 1.0
    weight_decay: NotNegative = 0.0
    decay: Decayed = "not_norm"


@dataclass(frozen=True)
class Lars(Part, path="optimizer"):
    """LARS: the step of each convolution and dense weight is scaled by about `trust` times |weight| / |gradient|.

    Biases and the parameters of norms are not scaled. Form `contrib` is TensorFlow's: the ratio scales the learning
    rate, and the L2 term is part of the loss. Form `resnext` is that of Ascend's model zoo: the ratio scales gradient
    and decay before Nesterov momentum, and the loss has no L2 term. The formulas are in training/lars.py.
    """

    lr: NotNegative = 1.0  # multiplies the schedule; LarsPolynomial itself has the peak rate
    momentum: Fraction = 0.9
    weight_decay: NotNegative = 1e-4
    trust: Positive = 0.001
    form: LarsForm = "contrib"
    epsilon: NotNegative | None = None  # added to the ratio's denominator; None: 0 for contrib, 1e-5 for resnext
    decay: Decayed | None = None  # None: not_norm for contrib, weights for resnext


@dataclass(frozen=True)
class Thor(Part, path="optimizer"):
    """THOR: SGD with momentum over gradients that are preconditioned by K-FAC factors.

    The factors are computed and inverted every `frequency` steps. The damping at epoch e is damping_init *
    damping_decay ** (e / 10). With the trace rule a layer keeps its inverses if the product of its factors' traces has
    changed by at most the share `trace_renew` since they were inverted; if it has changed by less than `trace_freeze`,
    the layer keeps them for good. ThorDecay is the usual schedule of the learning rate.
    """

    lr: NotNegative = 0.045
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 5e-4
    decay: Decayed = "all"
    damping_init: Positive = 0.03
    damping_decay: Positive = 0.87
    frequency: PositiveCount = 100  # steps
    block: Count = 128  # size of the diagonal blocks of the factors; 0: a single block
    form: Literal["ascend", "gpu"] = "ascend"  # gpu: patches and gradients are averaged over the batch first
    # The ranks average the inverses in several messages; this has the index of each message's last layer, but the last.
    split_indices: tuple[int, ...] = ()  # empty: two messages, each with half of the layers
    trace_rule: bool = False
    trace_renew: float = 0.01
    trace_freeze: float = 0.001

    def _check(self) -> None:
        indices = self.split_indices
        rising = all(a < b for a, b in zip((-1, *indices), indices, strict=False))
        require(rising, "optimizer.split_indices", indices, "rising from 0 or more")
        ordered = 0 <= self.trace_freeze <= self.trace_renew
        require(ordered, "optimizer.trace_freeze", self.trace_freeze, "from 0 to optimizer.trace_renew")


@dataclass(frozen=True)
class Ema(Part, path="ema"):
    """Average of the weights and batch norm statistics over the steps; evaluation uses it.

    With `num_updates` the decay at step t (from 1) is min(decay, (1 + t) / (10 + t)), as in TensorFlow.
    """

    decay: Fraction = 0.9999
    num_updates: bool = True


@dataclass(frozen=True)
class Constant(Part, path="schedule"):
    """The optimizer's learning rate from the first step to the last."""


@dataclass(frozen=True)
class Steps(Part, path="schedule"):
    """Linear warm-up, then a factor that changes after the epochs in `boundaries` (TensorFlow's official models)."""

    boundaries: tuple[float, ...] = (30, 60, 80, 90)
    factors: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001, 1e-4)  # before, between and after the boundaries
    warmup_epochs: NotNegative = 5

    def _check(self) -> None:
        require_steps(self.boundaries, self.factors)


@dataclass(frozen=True)
class Cosine(Part, path="schedule"):
    """Linear warm-up, then half a cosine down to `floor` times the peak."""

    warmup_epochs: NotNegative = 5
    floor: Share = 0.0


@dataclass(frozen=True)
class BookCosine(Part, path="schedule"):
    """Linear warm-up, then linear times cosine decay, as the CANN book's listing computes it."""

    warmup_epochs: NotNegative = 5


@dataclass(frozen=True)
class V15Decay(Part, path="schedule"):
    """Schedule of ResNet-50 v1.5: linear warm-up, then a factor by epoch, or a cosine that starts at step 0."""

    mode: Literal["steps", "cosine"] = "steps"
    warmup_epochs: NotNegative = 8
    boundaries: tuple[float, ...] = (30, 60, 80, 90)  # epochs, in mode steps
    factors: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001, 1e-4)  # before, between and after the boundaries
    # Length of the cosine: with "epoch" that of this run, with "batch" always 90 epochs, as in the reference.
    iter_unit: Literal["epoch", "batch"] = "epoch"

    def _check(self) -> None:
        require_steps(self.boundaries, self.factors)


@dataclass(frozen=True)
class ResnextDecay(Part, path="schedule"):
    """Schedule of ResNeXt: half-cosine warm-up and a cosine down to `end` times the peak, or one of the other modes."""

    mode: Literal["cosine", "steps", "poly", "linear"] = "cosine"
    warmup_epochs: NotNegative = 5  # the modes steps and linear have no warm-up
    end: NotNegative = 1e-6  # in mode cosine a share of the peak, in mode linear a learning rate
    boundaries: tuple[float, ...] = (30, 60, 80)  # in mode steps the rate is divided by ten after each of these epochs

    def _check(self) -> None:
        require_rising(self.boundaries)


@dataclass(frozen=True)
class AmoebanetDecay(Part, path="schedule"):
    """Schedule of AmoebaNet: linear warm-up, then a decay by `mode`; never below `floor` times the peak."""

    mode: Literal["exponential", "cosine", "constant", "stepwise"] = "exponential"
    warmup_epochs: NotNegative = 0.35
    decay: PositiveShare = 0.88  # factor after each epoch in mode exponential
    boundaries: tuple[float, ...] = (10, 20)  # in mode stepwise the rate is divided by ten after each of these epochs
    floor: Share = 1e-4

    def _check(self) -> None:
        require_rising(self.boundaries)


@dataclass(frozen=True)
class LarsPolynomial(Part, path="schedule"):
    """LARS in TensorFlow's official models: linear warm-up to a peak, then quadratic decay to `end`.

    The default peak is 5 for global batches below 8192, 10 below 16384, 25 below 32768, else 32. The default warm-up
    takes 5 epochs, from a batch of 32768 on 14. The optimizer's rate multiplies all of this; it is usually 1.
    """

    peak: Positive | None = None  # None: chosen by the global batch
    warmup_epochs: NotNegative | None = None  # None: chosen by the global batch
    end: NotNegative = 1e-4


@dataclass(frozen=True)
class MindsporePolynomial(Part, path="schedule"):
    """MindSpore's schedule for CIFAR-10: linear warm-up from `start` times the peak, then quadratic decay to 0."""

    warmup_epochs: NotNegative = 5
    start: Share = 0.1


@dataclass(frozen=True)
class ThorDecay(Part, path="schedule"):
    """Schedule of THOR: the share of epochs left until `end_epoch`, which may be after the run's end, to a power."""

    end_epoch: Positive = 70  # MindSpore's lr_end_epoch
    power: NotNegative = 6  # MindSpore's lr_decay
    halve_at: tuple[float, ...] = (39, 40)  # from each of these epochs on the rate is halved once more

    def _check(self) -> None:
        require_rising(self.halve_at, "schedule.halve_at")


Schedule = (
    Constant
    | Steps
    | Cosine
    | BookCosine
    | V15Decay
    | ResnextDecay
    | AmoebanetDecay
    | LarsPolynomial
    | MindsporePolynomial
    | ThorDecay
)


@dataclass(frozen=True)
class Amoebanet(Part, path="network"):
    """Options of AmoebaNet-D, besides its classes and the size of its images.

    Drop path leaves out operations of a cell for some examples. At the end of the run an operation of the last cell is
    kept with probability `drop_path_keep`. The share left out grows over the run (v1), from cell to cell (v2), or both
    (v3).
    """

    cells: int = 6  # the reference's num_cells
    filters: int = 256  # the reference's reduction_size
    aux: bool = True  # auxiliary head
    dropout_keep: PositiveShare = 0.5
    drop_path_keep: PositiveShare = 1.0
    drop_path_version: Literal["v1", "v2", "v3"] = "v1"


@dataclass(frozen=True)
class CrossEntropy(Part, path="loss"):
    """Softmax cross entropy, averaged over the batch.

    Label smoothing takes its share from the true class and spreads it evenly over all classes (`spread="all"`, as in
    TensorFlow and torch), or over the wrong classes only (`spread="others"`, as in the CANN book).
    """

    label_smoothing: Fraction = 0.0
    spread: Literal["all", "others"] = "all"
    smooth_evaluation: bool = False  # smooth the labels of the validation loss, too, as in Ascend's model zoo


@dataclass(frozen=True)
class Precision(Part, path="precision"):
    """Data type of the network's computation, and scale of the loss.

    `auto` is bf16 if the hardware computes in it, else fp16, else fp32. Level O0 is fp32, O1 autocast; O2 casts the
    network without its norms, O3 all of it. O1 to O3 use fp16 if the device has it, else bf16; O2 and O3 keep fp32
    master weights for the optimizer.

    In fp32, NVIDIA cards round the inputs of convolutions to TF32, PyTorch's default, unless `tf32` is false.
    """

    compute: Literal["auto", "fp32", "bf16", "fp16", "O0", "O1", "O2", "O3"] = "auto"
    keep_batchnorm_fp32: bool | None = None  # with O2 and O3: whether norms stay in fp32; None: with O2 only
    loss_scale: Positive | Literal["auto", "dynamic"] = "auto"  # auto: fp16_scale for fp16, 1 otherwise
    scale_start: Positive = 65536.0  # first value of a dynamic scale
    scale_grow_every: PositiveCount = 2000  # steps in a row without overflow after which a dynamic scale doubles
    scale_shrink_after: PositiveCount = 1  # overflows after which it is halved
    fp16_scale: Positive | Literal["dynamic"] = "dynamic"
    drop_overflow: bool = True  # skip a step whose gradients overflow in fp16; false: update the weights nevertheless
    tf32: bool = True

    def _check(self) -> None:
        dynamic = "dynamic" in (self.loss_scale, self.fp16_scale if self.loss_scale == "auto" else None)
        expected = "true with a dynamic loss scale, which is adjusted by dropping steps"
        require(self.drop_overflow or not dynamic, "precision.drop_overflow", self.drop_overflow, expected)


@dataclass(frozen=True)
class Evaluation(Part, path="evaluation"):
    """Evaluations on the validation images."""

    every_epochs: NotNegative = 1  # the reference scripts' epochs_between_evals; 0: only at the end
    stop_threshold: Share = 0.0  # stop once top-1 (0 to 1) reaches this; 0: never
    eval_only: bool = False


@dataclass(frozen=True)
class Checkpoint(Part, path="checkpoint"):
    """Times of checkpoints, and how many are kept. A checkpoint is always saved at the end of a run."""

    every_steps: Count = 0  # 0: not by steps
    every_minutes: NotNegative = 10.0  # 0: not by time
    keep: PositiveCount = 5
    keep_best: bool = True  # save a checkpoint after an evaluation with a new best top-1, and keep the last of these


TRACKERS = ("tensorboard", "mlflow", "wandb")
TENSORBOARD_RECORDS = ("images", "histograms", "graph", "top5")  # that can be written besides the usual curves


@dataclass(frozen=True)
class Log(Part, path="log"):
    """Log lines of a training, and TensorBoard's records besides the usual curves."""

    every_steps: PositiveCount = 100
    format: LogFormat = DEFAULT_FORMAT
    tensorboard: str = ""  # images, histograms, graph, top5, separated by commas; or all
    tensorboard_every: Count = 0  # steps between images and histograms; 0: as every_steps
    track: str = ""  # mlflow, wandb, tensorboard, separated by commas: trackers that also get the log records

    @property
    def tensorboard_names(self) -> frozenset[str]:
        """Records of TensorBoard that are written besides the usual curves."""
        names = frozenset(split_names(self.tensorboard))
        return frozenset(TENSORBOARD_RECORDS) if "all" in names else names

    def _check(self) -> None:
        expected = f"some of {', '.join(TENSORBOARD_RECORDS)}, or all"
        require(self.tensorboard_names <= set(TENSORBOARD_RECORDS), "log.tensorboard", self.tensorboard, expected)
        require(set(self.trackers) <= set(TRACKERS), "log.track", self.track, f"some of {', '.join(TRACKERS)}")

    @property
    def trackers(self) -> tuple[str, ...]:
        """Names of the trackers, each once."""
        return tuple(split_names(self.track))


def split_names(text: str) -> list[str]:
    """Return names separated by commas, each once."""
    return list(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))


@dataclass(frozen=True)
class Top1(Part, path="expects"):
    """Validation accuracy, in percent, that a run of this recipe should reach."""

    percent: Annotated[float, Ge(0), Le(100)]
    within: NotNegative = 0.0  # percentage points by which a run may miss it


@dataclass(frozen=True)
class Init(Part, path="init"):
    """Initial weights that are not random, and parameters that are not trained.

    `exclude` and `freeze` are patterns of parameter names, separated by commas (training/freezing.py).
    """

    source: str = ""  # value of --init; empty in a recipe file, which holds no paths
    exclude: str = ""  # parameters that start from random weights
    freeze: str = ""  # parameters that are not trained; also "all but head"
    schedule: Literal["restart", "continue"] = "restart"  # continue: begin at the step after which they were saved


@dataclass(frozen=True)
class Parallel(Part, path="parallel"):
    """Options of training with several ranks; the number of ranks is no part of a recipe.

    With `sync_norm` batch norms use the statistics of the whole global batch, else those of the rank's own share. Mode
    `data` has the whole network on each rank. In mode `hybrid` each rank has a part of the classifier's classes, for
    networks with very many classes. Mode `auto` chooses hybrid for a large classifier if it then saves time by an
    estimate.
    """

    mode: Literal["data", "hybrid", "auto"] = "data"
    sync_norm: bool = False
    compress: Literal["none", "bf16", "fp16"] = "none"  # dtype in which gradients are sent
    reduce: Literal["mean", "sum"] = "mean"  # of the ranks' gradients; with sum, updates grow with the number of ranks
    bucket_mb: Positive = 25.0  # gradients are sent in messages of about this size, while others are still computed
    find_unused: bool = False  # needed by a network that does not use all of its weights in every step
    hang_seconds: Positive = 300.0  # the ranks end if one of them makes no progress for so long (training/watchdog.py)


# Fields of an evaluation in metrics.jsonl; a recipe's own metrics must not have these names.
RESERVED_METRIC_NAMES = ("step", "epoch", "time", "kind", *EVALUATION_FIELDS)


@dataclass(frozen=True)
class Recipe(Part):
    """What to train and how. Batch sizes are global: they count the images of all ranks together.

    In a recipe of your own, `model`, `loss`, `optimizer` and `schedule` may be functions:
    model(classes) -> nn.Module; loss(logits, labels) -> scalar tensor; optimizer(parameters) ->
    torch.optim.Optimizer; schedule(step, steps) -> factor of the optimizer's learning rate. With mixup the
    loss gets a row of shares for each image, one share for each class, in place of labels.
    """

    model: str | Callable[..., Any]
    data: Source
    optimizer: Sgd | AdamW | RmsProp | Lars | Thor | Callable[..., Any] = field(default_factory=Sgd)
    schedule: Schedule | Callable[..., Any] = field(default_factory=Constant)
    loss: CrossEntropy | Callable[..., Any] = field(default_factory=CrossEntropy)
    aux_weight: NotNegative = 0.4  # of the loss of an auxiliary head, in training
    network: Amoebanet | None = None  # options of the network
    # Mix each image and its label with another image of the batch, in a ratio drawn from Beta(mixup, mixup); 0: off.
    mixup: NotNegative = 0.0
    # Replace a box of each image by that of another one; its share of the area is drawn from Beta(cutmix, cutmix); 0:
    # off.
    cutmix: NotNegative = 0.0
    epochs: Positive = 1
    steps: Count = 0  # total number of optimizer steps; 0: as many as `epochs` have
    ema: Ema | None = None
    init: Init = field(default_factory=Init)
    precision: Precision = field(default_factory=Precision)
    parallel: Parallel = field(default_factory=Parallel)
    # graph: torch.compile compiles the network; auto: graph where that is known to be quicker (docs/speed.md).
    mode: Literal["auto", "eager", "graph"] = "auto"
    compile: Literal["auto", "regional", "whole", "off"] = "auto"  # in graph mode; regional: block by block
    compile_parts: str = ""  # in graph mode: patterns of the names of the parts to compile instead
    kernels: Literal["auto", "on", "off"] = "auto"  # use viaduct's own kernels for parts of the network that they fit
    sink: Count | Literal["auto"] = "auto"  # steps that the device runs without the host; 0: the host drives each step
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    log: Log = field(default_factory=Log)
    seed: Count = 1
    accumulate: PositiveCount = 1  # number of parts in which the global batch is computed
    clip_norm: NotNegative = 0.0  # 0: gradients are not clipped
    deterministic: bool = False
    callbacks: tuple[Any, ...] = ()
    metrics: dict[str, Callable[..., Any]] = field(default_factory=dict)  # name -> metric(logits, labels): a number
    expects: Top1 | None = None

    @property
    def mixes_images(self) -> bool:
        """Return True if training images are mixed in pairs, by mixup or cutmix."""
        return self.mixup > 0 or self.cutmix > 0

    def _check(self) -> None:
        for name, metric in self.metrics.items():
            usable = isinstance(name, str) and name.isidentifier() and name not in RESERVED_METRIC_NAMES
            require(usable, "a name in metrics", name, f"a word, and none of {', '.join(RESERVED_METRIC_NAMES)}")
            require(callable(metric), f"metrics[{name!r}]", metric, "a function of logits and labels")
        expected = f"a divisor of data.global_batch ({self.data.global_batch})"
        require(self.data.global_batch % self.accumulate == 0, "accumulate", self.accumulate, expected)

    @property
    def optimizer_slots(self) -> int:
        """Most fp32 numbers that the optimizer keeps for each parameter, besides THOR's factors.

        1 is assumed for an optimizer of the recipe's author.
        """
        return getattr(self.optimizer, "SLOTS", 1)
