"""Set NPURunConfig's options for loops, precision, fusion switches, profiling and dumps.

With `--loop 100 --precision allow_mix_precision`:

     import tensorflow as tf
     from npu_bridge.estimator.npu.npu_config import NPURunConfig
    -config = NPURunConfig(model_dir="out")
    +config = NPURunConfig(model_dir="out", iterations_per_loop=100, precision_mode="allow_mix_precision")

`--loop N` runs N steps on the device before it reports to the host: steps and checkpoint intervals must be multiples of
N. `--fusion-switch FILE` names a file on the device's machine that disables fusion rules of the graph compiler
(`{"Switch": {"GraphFusion": {"ALL": "off"}}}`). `--profile DIR` adds a ProfilingConfig, `--dump DIR` a DumpConfig.
"""

from __future__ import annotations

from viaduct.cards.tensorflow_api import full_name
from viaduct.migration.options import has_run_options
from viaduct.migration.profiling_points import render_profiling_options
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._run_configs import PRECISION_KEYS

# After the rules that write a call of NPURunConfig.
rule = Rule(
    __name__,
    spec_rows=("E15", "S13", "L6"),
    category="performance",
    when=has_run_options,
    after=("estimator_class", "keras_estimator", "tpu_estimator"),
)


@rule.call(full_name("NPURunConfig"))
def add_options(site: Site) -> None:
    """Add the arguments that the options require and the call does not have."""
    present = {keyword.arg for keyword in site.node.keywords}
    missing = render_required_arguments(site, present)
    if missing and site.is_editable:
        site.edit.add_argument(site.node, ", ".join(f"{name}={text}" for name, text in missing.items()))
        names = ", ".join(missing)
        site.report_change(f"requested on the command line: {names}", zh=f"按命令行要求添加:{names}")
    if site.options.loop > 1 and "iterations_per_loop" not in present:
        site.advise(
            f"steps and checkpoint intervals must be multiples of {site.options.loop}; hooks see every "
            f"{site.options.loop}th step",
            zh=f"训练步数与保存间隔须为 {site.options.loop} 的整数倍;hook 每 {site.options.loop} 步触发一次",
        )


def render_required_arguments(site: Site, present: set[str | None]) -> dict[str, str]:
    """Return the missing arguments that the options require, each with the code of its value."""
    options = site.options
    arguments: dict[str, str] = {}
    if options.loop > 1:
        arguments["iterations_per_loop"] = str(options.loop)
    if options.precision and not present & PRECISION_KEYS:  # a config may have one of them only
        arguments[options.precision_key] = f'"{options.precision}"'
    if options.fusion_switch:
        arguments["fusion_switch_file"] = repr(options.fusion_switch)
    if options.profile and "profiling_config" not in present:
        profiling = f"enable_profiling=True, profiling_options={render_profiling_options(options)!r}"
        arguments["profiling_config"] = f"{site.import_npu_name('ProfilingConfig')}({profiling})"
    if options.dump and "dump_config" not in present:
        step = f", dump_step={options.dump_step!r}" if options.dump_step else ""
        dump = f'enable_dump=True, dump_path={options.dump!r}{step}, dump_mode="all"'
        arguments["dump_config"] = f"{site.import_npu_name('DumpConfig')}({dump})"
    return {name: text for name, text in arguments.items() if name not in present}
