"""Rows of the specification of `viaduct migrate`, and the rules that implement each.

A row is one requirement, such as E1 (the first about Estimator), or a section, such as 2.8 (Horovod). `--only`,
`--skip` and `--explain` accept rows. The specification itself is not part of the repository.
"""

from __future__ import annotations

# First letter of a row -> (subject, number of rows): I1 to I5.
ROWS = {
    "I": ("Imports", 5),
    "D": ("Input pipeline", 11),
    "N": ("Model code", 11),
    "E": ("Estimator", 17),
    "S": ("Sessions", 13),
    "K": ("Keras", 10),
    "V": ("Distribution", 8),
    "L": ("Precision and loss scale", 7),
    "C": ("Life cycle", 6),
    "P": ("PyTorch", 27),
}
# Rows that name a section of the specification.
SECTIONS = {
    "2.11": "Preset",
    "2.8": "Horovod",
    "5": "Operators of PyTorch",
    "6": "PyTorch on the MLU",
    "6.1": "TensorFlow 1 on the MLU",
    "8": "Support of symbols",
}
# Rows that no rule implements completely -> place of the implementation, or the reason why there is none.
ELSEWHERE = {
    "I1": "names that rules introduced are imported: `migration/imports.py`",
    "I2": "`RewriterConfig` is imported like other names: `migration/imports.py`",
    "I3": "where an import is inserted: `migration/imports.py`",
    "I5": "names that would shadow another name get the prefix `npu_`: `migration/engine.py`",
    "D10": "left alone: iterators and feed dicts work as they are",
    "E9": "left alone: NPUEstimator accepts an EstimatorSpec",
    "E14": "left alone otherwise: train, evaluate, predict, their specs and hooks work as they are",
    "E17": "the start scripts that `--out` writes set these variables: `cluster/project_scripts.py`",
    "S6": "left alone in explicit style; `--style wrapper` inherits the adapter's setting",
    "V8": "left alone: each model decides how it splits its gradients",
    "C3": "with `--resources plugin`",
    "P23": "left alone: torch.accelerator is device neutral",
    "P24": "left alone: branches for the CPU and for mps keep their structure, only names in them change",
}
# Rows -> names of the rules that implement them.
_RULES = {
    "I4": "tf1.imports_report",
    "D1": "tf1.dataset_batchers tf1.dataset_drop_remainder",
    "D2 D3": "tf1.dataset_drop_remainder",
    "D4": "tf1.dataset_counts",
    "D5": "tf1.dataset_shard",
    "D6": "tf1.dataset_unsharded",
    "D7 D8 D9 D10 D11": "tf1.dataset_advice",
    "N1": "tf1.dropout",
    "N2": "tf1.dropout_layers",
    "N3": "tf1.gelu",
    "N4": "tf1.device_block",
    "N5 N6 N7": "tf1.seed_tuning",
    "N8 N9 N10 N11": "tf1.model_advice",
    "E1 E2 E3 E4": "tf1.estimator_run_config",
    "E5 E6 E7": "tf1.estimator_class",
    "E8": "tf1.estimator_canned",
    "E10 E11": "tf1.tpu_estimator",
    "E12 E13": "tf1.tpu_spec",
    "E14": "tf1.distribute_broadcast",
    "E15": "tf1.estimator_run_options",
    "E16": "tf1.estimator_steps",
    "S1 S2 S3 S4": "tf1.session_config",
    "S5": "tf1.session_xla",
    "S6": "tf1.session_config",
    "S7": "tf1.horovod_devices tf1.session_gpu_options",
    "S8": "tf1.session_grad_fusion",
    "S9 S10": "tf1.session_close",
    "S11": "tf1.session_config_helper",
    "S12": "tf1.session_device_config tf1.session_graph_options tf1.session_xla",
    "S13": "tf1.estimator_run_options tf1.session_options",
    "K1": "tf1.keras_session",
    "K2": "tf1.keras_session tf1.session_config",
    "K3": "tf1.keras_session",
    "K4": "tf1.keras_estimator",
    "K5": "tf1.keras_distributed_optimizer",
    "K6": "tf1.keras_broadcast",
    "K7": "tf1.keras_clear_session",
    "K8": "tf1.keras_batch",
    "K9 K10": "tf1.keras_unsupported",
    "V1": "tf1.distribute_servers tf1.distribute_strategy",
    "V2": "tf1.distribute_optimizer tf1.distribute_sum tf1.distribute_sum_left",
    "V3": "tf1.distribute_gradients",
    "V4": "tf1.distribute_broadcast",
    "V5": "tf1.device_block",
    "V6": "tf1.distribute_metrics",
    "V7": "tf1.distribute_environment",
    "L1 L2": "tf1.loss_scale_managers",
    "L3": "tf1.loss_scale_optimizer",
    "L4": "tf1.precision_graph_rewrite",
    "L5": "tf1.loss_scale_by_hand",
    "L6": "tf1.estimator_run_options tf1.session_options",
    "L7": "tf1.loss_scale_by_hand",
    "C1": "tf1.horovod_lifecycle tf1.lifecycle_init",
    "C2": "tf1.lifecycle_cycles",
    "C3": "tf1.lifecycle_init",
    "C4 C5": "tf1.lifecycle_cycles tf1.lifecycle_init",
    "C6": "tf1.lifecycle_shutdown",
    "P1": "torch.already torch.patch_mode torch.patched torch.plugin torch.vendor_code",
    "P2": (
        "torch.cuda_api torch.cuda_module torch.cuda_strings torch.cuda_unknown torch.default_tensor_type "
        "torch.imports torch.rng_state torch.tensor_type torch.unused_imports"
    ),
    "P3": "torch.capability",
    "P4": "torch.properties",
    "P5": "torch.double",
    "P6": (
        "torch.backends_cuda torch.cuda_graphs torch.cuda_unknown torch.huggingface torch.kernels "
        "torch.nvidia_runtime torch.nvtx torch.out_of_memory torch.packages"
    ),
    "P7": "torch.cuda_method torch.unknown_program",
    "P8": (
        "torch.any_device_integer torch.any_device_text torch.device_integer torch.device_left torch.device_string "
        "torch.unknown_program"
    ),
    "P9": (
        "torch.any_device_compare torch.any_device_text torch.device_argparse torch.device_compare torch.device_key "
        "torch.device_left torch.device_string torch.patch_limits torch.tensor_type"
    ),
    "P10": "torch.any_device_compare torch.autograd_profiler torch.is_cuda torch.profiler",
    "P11": "torch.amp torch.any_amp torch.autocast torch.autocast_state torch.cuda_api torch.imports",
    "P12": "torch.apex",
    "P13": "torch.backend torch.backend_compare",
    "P14": "torch.data_parallel torch.data_parallel_ddp",
    "P15": "torch.ddp",
    "P16": "torch.pinned_memory",
    "P17": "torch.int32_targets",
    "P18": "torch.any_device_text torch.cuda_method torch.device_string torch.map_location torch.patch_limits",
    "P19": "torch.backends_cuda torch.cudnn torch.tf32",
    "P20": "torch.nccl_variables torch.patch_limits torch.visible_devices",
    "P21": "torch.compile torch.jit_script torch.patch_limits",
    "P22": "torch.channels_last",
    "P24": "torch.device_string",
    "P25": "torch.any_device_text torch.device_string",
    "P26": "torch.start_up",
    "P27": "torch.any_device_integer torch.launch_commands torch.local_rank",
    "2.11": "tf1.preset_resnet_seed tf1.seed_gpu_question tf1.seed_logging",
    "2.8": (
        "tf1.horovod_broadcast tf1.horovod_collectives tf1.horovod_compression tf1.horovod_devices "
        "tf1.horovod_import tf1.horovod_leftovers tf1.horovod_lifecycle tf1.horovod_optimizer tf1.horovod_ranks"
    ),
    "5": "torch.default_tensor_type torch.operators",
    "6": (
        "tf1.any_left torch.already torch.amp torch.apex torch.autocast torch.autocast_state torch.autograd_profiler "
        "torch.backends_cuda torch.capability torch.compile torch.cuda_api torch.cuda_graphs torch.cuda_method "
        "torch.cuda_module torch.cuda_strings torch.cuda_unknown torch.cudnn torch.default_tensor_type "
        "torch.device_integer torch.device_key torch.device_left torch.device_string torch.double torch.huggingface "
        "torch.imports torch.is_cuda torch.jit_script torch.lightning torch.mlu_core torch.nccl_variables torch.nvtx "
        "torch.operators torch.patch_mode torch.patched torch.plugin torch.profiler torch.properties "
        "torch.tensorflow_beside torch.tf32 torch.vendor_code torch.visible_devices"
    ),
    "6.1": "tf1.mlu_devices tf1.mlu_environment tf1.mlu_options tf1.mlu_report",
    "8": "tf1.debug_hooks tf1.tensorflow2 tf1.unsupported_api",
}
RULES_BY_ROW = {row: names.split() for rows, names in _RULES.items() for row in rows.split()}
ROWS_BY_RULE: dict[str, list[str]] = {}
for _row, _names in RULES_BY_ROW.items():
    for _name in _names:
        ROWS_BY_RULE.setdefault(_name, []).append(_row)
