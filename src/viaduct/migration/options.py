"""Options of a migration: the flags of `viaduct migrate` that affect its result, each with a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from viaduct.cards.cann_options import PRECISION_MODES
from viaduct.cards.npu import DEFAULT_RANK_SOURCE, RankSource
from viaduct.flags import Flag

TargetName = Literal["npu", "mlu", "any"]
Mode = Literal["rewrite", "patch"]

# Headings in the help of `viaduct migrate`
TORCH, TF1, RULES = "PyTorch scripts", "TensorFlow 1 scripts", "Rules"


@dataclass(frozen=True)
class Options:
    """Options of one migration."""

    to: Annotated[TargetName, Flag("The accelerator; any (PyTorch only): one source for cuda, npu, mlu and cpu.")] = (
        "npu"
    )
    entry: Annotated[
        str, Flag("The script that is started.", metavar="FILE", default="found if it is the only one")
    ] = ""
    exclude: Annotated[
        tuple[str, ...],
        Flag("Do not change files that match this .gitignore pattern; may be repeated.", metavar="PATTERN"),
    ] = ()
    mode: Annotated[
        Mode, Flag("Rewrite, or only import the vendor's run-time patch and report what it cannot fix.", TORCH)
    ] = "rewrite"
    data_parallel: Annotated[
        Literal["report", "unwrap", "ddp"],
        Flag("nn.DataParallel: report it, unwrap it, or replace it by DistributedDataParallel.", TORCH),
    ] = "report"
    int32_targets: Annotated[bool, Flag("On the NPU: cast class labels to int32 before they are moved.", TORCH)] = False
    start_up: Annotated[bool, Flag("On the NPU: write the settings that are recommended for speed.", TORCH)] = False
    distributed: Annotated[bool, Flag("Migrate for several devices.", TF1)] = False
    precision: Annotated[str, Flag("precision_mode, or a mode of precision_mode_v2.", TF1, "MODE")] = ""
    loop: Annotated[int, Flag("iterations_per_loop: steps on the device per return to the host.", TF1)] = 1
    style: Annotated[
        Literal["explicit", "wrapper"], Flag("Sessions: write out the options, or use the vendor's helpers.", TF1)
    ] = "explicit"
    imports: Annotated[
        Literal["explicit", "star"],
        Flag("Import names of npu_bridge one by one, or with npu_init's star import.", TF1),
    ] = "explicit"
    rank: Annotated[
        RankSource,
        Flag(f"Source of rank and size: {DEFAULT_RANK_SOURCE} (the library), or the environment.", TF1),
    ] = DEFAULT_RANK_SOURCE
    reduction: Annotated[
        Literal["average", "sum"], Flag("With --distributed: average or sum of the ranks' gradients.", TF1)
    ] = "average"
    resources: Annotated[
        Literal["session", "plugin"],
        Flag("Start communication with a separate session, or with npu_plugin.", TF1),
    ] = "session"
    device: Annotated[Literal["remove", "cpu"], Flag("`with tf.device('/gpu:0')`: remove, or name the CPU.", TF1)] = (
        "remove"
    )
    tpu: Annotated[
        Literal["convert", "keep"], Flag("TPUEstimator: convert to NPUEstimator, or keep with the TPU off.", TF1)
    ] = "convert"
    keep_defaults: Annotated[bool, Flag("Write out TensorFlow's defaults where those of NPURunConfig differ.", TF1)] = (
        False
    )
    pad_predict: Annotated[bool, Flag("Pad the last batch of a prediction instead of dropping it.", TF1)] = False
    metrics_allreduce: Annotated[bool, Flag("Average evaluation metrics over the ranks.", TF1)] = False
    dropout_layers: Annotated[bool, Flag("Also let Keras' dropout layers use the device's dropout.", TF1)] = False
    preset: Annotated[str, Flag("Advice for one model: resnet-seed.", TF1, "NAME")] = ""
    fusion_switch: Annotated[
        str, Flag("File of the graph compiler's fusion switches: a path on the device.", TF1, "FILE")
    ] = ""
    profile: Annotated[str, Flag("Record profiles in this folder.", TF1, "DIR")] = ""
    profile_points: tuple[str, str] = ("", "")  # first operator of the forward, last of the backward pass
    dump: Annotated[str, Flag("Dump tensors to this folder.", TF1, "DIR")] = ""
    dump_step: Annotated[str, Flag("With --dump: steps to dump, such as 0|5-10.", TF1, "STEPS")] = ""
    # A rule is given by its name or a former name, or by a row of the table in docs/rules.md.
    only: Annotated[tuple[str, ...], Flag("Apply only this rule; may be repeated.", RULES, "RULE")] = ()
    skip: Annotated[tuple[str, ...], Flag("Do not apply this rule; may be repeated.", RULES, "RULE")] = ()

    @property
    def precision_key(self) -> str:
        """Name of the CANN setting that takes the value `precision`; the older one for a mode of both."""
        return "precision_mode" if self.precision in ("", *PRECISION_MODES) else "precision_mode_v2"


def is_distributed(options: Options) -> bool:
    return options.distributed


def has_run_options(options: Options) -> bool:
    """Return True if an option sets loops, precision, fusion switches, profiling or dumps of a run."""
    return options.loop > 1 or bool(options.precision or options.fusion_switch or options.profile or options.dump)


def has_resnet_preset(options: Options) -> bool:
    return options.preset == "resnet-seed"
