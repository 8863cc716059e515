"""Values that CANN, Ascend's software, accepts in the options of a TensorFlow 1 session or estimator."""

from __future__ import annotations

import re

# Values of precision_mode.
PRECISION_MODES = (
    "force_fp32", "allow_fp32_to_fp16", "force_fp16", "must_keep_origin_dtype", "allow_mix_precision",
    "cube_fp16in_fp32out", "allow_mix_precision_fp16", "allow_mix_precision_bf16", "allow_fp32_to_bf16",
)  # fmt: skip
# Values of precision_mode_v2. A session may set precision_mode or precision_mode_v2, not both.
PRECISION_MODES_V2 = ("fp16", "origin", "cube_fp16in_fp32out", "mixed_float16", "mixed_bfloat16")

DUMP_STEPS = re.compile(r"\d+(-\d+)?(\|\d+(-\d+)?)*")  # form of dump_step: 0|5-10|20

# Keys of profiling_options: the operator that begins the forward pass, and the one that ends the backward pass.
POINT_OPTIONS = ("fp_point", "bp_point")
# File of a rehearsal's record with the names of these operators, by the keys POINT_OPTIONS; `migrate` reads it.
PROFILING_POINTS_FILE = "profiling_points.json"
