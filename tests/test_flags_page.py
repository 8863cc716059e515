"""docs/flags.md has a row for every flag of the five documents, and what a row says can be given."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct import recipes
from viaduct.recipes._parts import Part

PAGE = (Path(__file__).parents[1] / "docs" / "flags.md").read_text(encoding="utf-8")

TF_OFFICIAL = """
data_dir model_dir clean train_epochs epochs_between_evals stop_threshold num_gpus hooks export_dir
distribution_strategy batch_size inter_op_parallelism_threads intra_op_parallelism_threads use_synthetic_data dtype
all_reduce_alg num_packs tf_gpu_thread_mode datasets_num_private_threads dynamic_loss_scale fp16_implementation
loss_scale tf_data_experimental_slack max_train_steps data_format worker_hosts task_index benchmark_test_id
resnet_version fine_tune pretrained_model_checkpoint_path eval_only image_bytes_as_serving_input
use_train_and_evaluate enable_lars label_smoothing weight_decay resnet_size poly_warmup_epochs precision_mode
save_checkpoints_steps keep_checkpoint_max iterations_per_loop
"""
RESNEXT = """
rank_size mode max_train_steps iterations_per_loop eval num_epochs data_url ckpt_dir lr_decay_mode learning_rate_maximum
learning_rate_end batch_size warmup_epochs momentum config_file debug model_dir num_classes model_name restore_path
restore_exclude loss_scale precision_mode save_checkpoints_steps keep_checkpoint_max brightness contrast saturation hue
increased_aug random_search_aug distort
"""
AMOEBANET = """
use_tpu mode data_dir model_dir num_cells image_size num_epochs train_batch_size eval_batch_size lr lr_decay_value
lr_warmup_epochs save_checkpoints_steps precision_mode DATA_DIR MODEL_DIR
"""
RESNET_MLU = """
mode batch_size lr_init iter_unit lr_warmup_epochs warmup_steps weight_init export_dir run_iter label_smoothing momentum
weight_decay data_format results_dir use_dali model_dir finetune_checkpoint data_dir data_idx_dir num_iter use_horovod
use_profiler use_performance use_amp np checkpoint_dir DATA_DIR DATA_IDX_DIR
"""
THOR = "momentum weight_decay loss_scale batch_size split_indices frequency"
BOOK = """
batch_size epoch_size warmup_epochs momentum weight_decay loss_scale save_checkpoint_steps keep_checkpoint_max prefix
directory checkpoint_path class_num pretrain_epoch_size mode device_target device_id enable_hccl num_shards shard_id
parallel_mode mirror_mean amp_level keep_batchnorm_fp32 drop_overflow_update dataset_sink_mode sink_size
"""
PYTORCH = "gpu distributed arch"
IN_CODE = """
precision_mode enable_auto_mix_precision iterations_per_loop hcom_parallel enable_data_pre_proc save_checkpoints_steps
keep_checkpoint_max save_checkpoints_secs save_summary_steps model_dir session_config allow_soft_placement
log_device_placement train_distribute dump_config enable_dump dump_path dump_step dump_mode profiling_config
profiling_mode profiling_options auto_tune_mode fusion_switch_file use_off_line RANK_ID RANK_SIZE RANK_TABLE_FILE
DEVICE_ID JOB_ID SOC_VERSION DEVICE_INDEX PROFILING_MODE PROFILING_OPTIONS
"""
DOCUMENTS = {
    "resnet50_imagenet: TensorFlow": TF_OFFICIAL,
    "resnext50_imagenet: ": RESNEXT,
    "amoebanet_d_imagenet: ": AMOEBANET,
    "resnet50_v15_imagenet: ": RESNET_MLU,
    "resnet50_thor_imagenet: ": THOR,
    "resnet50_cifar10: ": BOOK,
    "The PyTorch example": PYTORCH,
    "What the documents set in code": IN_CODE,
}
FLAGS = [(section, flag) for section, flags in DOCUMENTS.items() for flag in flags.split()]


def rows_of(section: str) -> list[list[str]]:
    """Return the rows of a section's table: its cells, the first as written."""
    text = next(part for part in PAGE.split("\n## ") if part.startswith(section))
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r" ?\| ?", " | ".join(row))] for row in rows[2:]]


def row_of(section: str, flag: str) -> list[str] | None:
    return next((row for row in rows_of(section) if flag in re.findall(r"\w+", row[0])), None)


@pytest.mark.parametrize(("section", "flag"), FLAGS)
def test_every_flag_of_a_document_has_a_row_that_says_what_it_becomes(section: str, flag: str) -> None:
    row = row_of(section, flag)
    assert row is not None, f"{flag} has no row under {section}"
    answer = row[-1]
    assert answer, f"{flag}: the row says nothing"
    if answer.startswith("–"):
        assert len(answer) > 10, f"{flag}: there is none, and no reason is given"


def test_a_flag_that_does_not_exist_is_noticed() -> None:
    assert row_of("resnext50_imagenet: ", "no_such_flag") is None


@cache
def help_of(*verb: str) -> str:
    return viaduct(*verb, "--help").stdout


def test_every_flag_of_ours_on_the_page_is_understood() -> None:
    known = "".join(
        help_of(*verb)
        for verb in (
            ("train",),
            ("migrate",),
            ("launch",),
            ("launch", "plan"),
            ("launch", "scripts"),
            ("evaluate",),
            ("export",),
            ("data", "index"),
        )
    )
    for flag in set(re.findall(r"`(--[a-z]+[a-z-]*)", PAGE)) | set(re.findall(r" (--[a-z]+[a-z-]*)[ `]", PAGE)):
        assert flag in known, flag


def all_parts(kind: type[Part]) -> set[type[Part]]:
    return {kind, *(part for below in kind.__subclasses__() for part in all_parts(below))}


def test_every_field_on_the_page_is_one_of_a_recipe() -> None:
    fields = {f"{part.path}.{field.name}" for part in all_parts(Part) for field in dataclasses.fields(part)}
    for data in (
        kind for kind in vars(recipes).values() if "global_batch" in getattr(kind, "__dataclass_fields__", ())
    ):
        fields |= {f"data.{field.name}" for field in dataclasses.fields(data)}
    sections = {"data", *(part.path for part in all_parts(Part) if part.path)}
    assert {"optimizer.lr", "data.global_batch"} <= fields
    for name in set(re.findall(r"`([a-z]+\.[a-z_0-9]+)`", PAGE)):
        if name.partition(".")[0] in sections:
            assert name in fields, name
