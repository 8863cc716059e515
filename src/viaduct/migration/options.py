"""Options of a migration: the flags of `viaduct migrate` that affect its result, each with a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from viaduct.cards.npu import DEFAULT_RANK_SOURCE, RankSource

TargetName = Literal["npu", "mlu", "any"]
Mode = Literal["rewrite", "patch"]
NEWER_PRECISION_MODES = ("fp16", "origin", "mixed_float16", "mixed_bfloat16")  # values of precision_mode_v2 only


@dataclass(frozen=True)
class Options:
    """Options of one migration."""

    to: TargetName = "npu"
    distributed: bool = False
    style: Literal["explicit", "wrapper"] = "explicit"  # of sessions: options written out, or the vendor's helpers
    imports: Literal["explicit", "star"] = "explicit"  # of npu_bridge: single names, or `from npu_init import *`
    precision: str = ""  # precision_mode, or precision_mode_v2
    loop: int = 1  # iterations_per_loop
    rank: RankSource = DEFAULT_RANK_SOURCE  # source of rank and size: "hccl", the collective library, or "env"
    reduction: Literal["average", "sum"] = "average"  # of gradients over the ranks
    resources: Literal["session", "plugin"] = "session"  # communication is started in its own session, or by npu_plugin
    device: Literal["remove", "cpu"] = "remove"  # `with tf.device('/gpu:0')` is removed, or becomes '/cpu:0'
    tpu: Literal["convert", "keep"] = "convert"  # TPUEstimator becomes NPUEstimator, or stays
    keep_defaults: bool = False  # write TensorFlow's defaults explicitly where those of NPURunConfig differ
    pad_predict: bool = False  # the last batch of a prediction is padded, not dropped
    metrics_allreduce: bool = False  # evaluation metrics are averaged over the ranks
    dropout_layers: bool = False  # dropout layers of Keras use the device's dropout too
    fusion_switch: str = ""  # a file that disables fusion rules of the graph compiler
    profile: str = ""  # a directory for profiling results
    profile_points: tuple[str, str] = ("", "")  # first operator of the forward, last of the backward pass
    dump: str = ""  # a directory for dumped tensors
    dump_step: str = ""  # steps to dump: "5", "0|5|10" or "3-6"
    preset: str = ""  # a name in checks.PRESETS
    entry: str = ""  # the script that is started; empty: not given
    data_parallel: Literal["report", "unwrap", "ddp"] = "report"  # nn.DataParallel; ddp: DistributedDataParallel
    mode: Mode = "rewrite"  # patch: only the vendor's run-time patch is imported
    int32_targets: bool = False  # class indices of losses become int32
    start_up: bool = False  # PyTorch on the NPU: write the settings recommended for speed
    exclude: tuple[str, ...] = ()  # patterns of files that are copied unchanged
    only: tuple[str, ...] = ()  # rules to run: their names or former names, or rows of the specification; (): all
    skip: tuple[str, ...] = ()  # rules not to run

    @property
    def precision_key(self) -> str:
        """Name of the CANN setting that takes the value `precision`."""
        return "precision_mode_v2" if self.precision in NEWER_PRECISION_MODES else "precision_mode"
