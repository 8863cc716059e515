"""Replace absl's logger by TensorFlow's, as in Ascend's ResNet.

With `--preset resnet-seed`:

     import tensorflow as tf
     from absl import logging
    -logging.set_verbosity(logging.INFO)
    -logging.info('Starting cycle: %d', 1)
    +tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    +tf.compat.v1.logging.info('Starting cycle: %d', 1)

Then TensorFlow, npu_bridge and the script use one logger with one level. The numbers of levels differ (INFO is 0 in
absl, 20 in TensorFlow), so levels other than absl's constants stay and get advice, as do functions that TensorFlow's
logger does not have. Python's own `logging` stays.
"""

from __future__ import annotations

import ast

from viaduct.migration.options import has_resnet_preset
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec_rows=("2.11",), category="advice", when=has_resnet_preset)

ABSL = "absl.logging"
LEVELS = {"DEBUG": "DEBUG", "INFO": "INFO", "WARN": "WARN", "WARNING": "WARN", "ERROR": "ERROR", "FATAL": "FATAL"}
FUNCTIONS_WITHOUT_LEVEL = ("debug", "info", "warn", "warning", "error", "fatal")
# Function whose first argument is a level -> the argument's name.
LEVEL_PARAMETERS = {"set_verbosity": "v"} | dict.fromkeys(("log", "log_every_n", "log_first_n", "log_if"), "level")


@rule.call(*(f"{ABSL}.{name}" for name in (*FUNCTIONS_WITHOUT_LEVEL, *LEVEL_PARAMETERS)))
def replace_logging_call(site: Site) -> None:
    tensorflow, name = site.file.names.local_name("tensorflow"), site.name.rpartition(".")[2]
    module = f"{tensorflow}.compat.v1.logging"
    if tensorflow is None or not site.is_editable:
        advise_unchanged(site, "this file does not import TensorFlow", "此文件未导入 TensorFlow")
        return
    if name in LEVEL_PARAMETERS:
        level = site.argument(LEVEL_PARAMETERS[name], 0)
        tensorflow_level = LEVELS.get(get_level_name(site, level))
        if tensorflow_level is None:
            advise_unchanged(
                site, "absl and TensorFlow count levels differently", "absl 与 TensorFlow 的日志级别数值不同"
            )
            return
        site.edit.replace_node(level, f"{module}.{tensorflow_level}")  # type: ignore[arg-type]
    site.rename(f"{module}.{name}")
    site.report_change(f"{name} is now called on TensorFlow's logger", zh=f"改用 TensorFlow 日志接口 {name}")


def get_level_name(site: Site, level: ast.expr | None) -> str:
    """Return "INFO" for absl's logging.INFO; "" for a number, a string or a flag."""
    qualified = site.qualified_name(level) if level is not None else None
    module, _, name = (qualified or "").rpartition(".")
    return name if module == ABSL else ""


@rule.call(f"{ABSL}.*")
def advise_other(site: Site) -> None:
    name = site.name.removeprefix(f"{ABSL}.")
    if name not in (*FUNCTIONS_WITHOUT_LEVEL, *LEVEL_PARAMETERS):
        advise_unchanged(site, "TensorFlow's logger has no such function", "TensorFlow 日志接口没有此函数")


def advise_unchanged(site: Site, reason: str, zh: str) -> None:
    site.advise(
        f"{site.text_of(site.node.func)} stays with absl: {reason}", zh=f"{site.text_of(site.node.func)} 保持不变:{zh}"
    )
