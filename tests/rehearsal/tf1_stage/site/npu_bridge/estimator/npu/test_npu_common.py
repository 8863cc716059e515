"""Options of an NPURunConfig in a session's config."""

from __future__ import annotations

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_options_of_the_script_stay_and_the_optimizer_is_entered_once() -> None:
    answer = evaluate(
        "npu",
        """
        from npu_bridge.estimator.npu import npu_common
        from npu_bridge.estimator.npu.npu_config import DumpConfig, NPURunConfig, ProfilingConfig
        own = tf.ConfigProto(intra_op_parallelism_threads=3)
        entry = own.graph_options.rewrite_options.custom_optimizers.add()
        entry.name = "NpuOptimizer"
        entry.parameter_map["use_off_line"].b = False
        entry.parameter_map["precision_mode"].s = b"force_fp32"
        config = npu_common.npu_session_config(npu_common.npu_session_config(own))
        run = NPURunConfig(precision_mode="allow_mix_precision", iterations_per_loop=4,
                           dump_config=DumpConfig(True, "out", "0"), profiling_config=ProfilingConfig(False, "{}"))
        npu_common.copy_options(run, config)
        npu_common.add_optimizers(config)
        npu_common.add_optimizers(config)
        rewrites = config.graph_options.rewrite_options
        options = npu_common.parameter_map(config)
        answer = {
            "entries": len(rewrites.custom_optimizers),
            "threads": config.intra_op_parallelism_threads,
            "changed": own.allow_soft_placement,
            "remapping": rewrites.remapping == rewrites.OFF,
            "names": [len(rewrites.optimizers), len(set(rewrites.optimizers))],
            "kept": [options["use_off_line"].b, options["precision_mode"].s],
            "copied": [options["iterations_per_loop"].i, options["enable_dump"].b, options["dump_step"].s],
            "absent": [key for key in ("profiling_mode", "model_dir", "aoe_mode") if key in options],
        }
        """,
    )
    assert answer == {
        "entries": 1,
        "threads": 3,
        "changed": False,
        "remapping": True,
        "names": [9, 9],
        "kept": [False, "force_fp32"],
        "copied": [4, True, "0"],
        "absent": [],
    }
