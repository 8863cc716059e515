"""Replace the GPU in device strings by the MLU.

     import tensorflow as tf
    -with tf.device("/gpu:%d" % index):
    +with tf.device("/mlu:%d" % index):
         x = tf.zeros([2])

Cambricon's build of TensorFlow 1.15 has the device type MLU. The rule edits the device strings of tf.device,
strategies, Horovod and device setters. If such an argument is a variable, the strings assigned to it change; a variable
that is also compared needs manual review.
"""

from __future__ import annotations

import ast
import re
import tokenize

from viaduct.migration.lookups import argument_values, bindings_of, find_reads, mark_once, parameter_default
from viaduct.migration.names import Function
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1._strategies import DEVICE_SETTERS, STRATEGIES

rule = Rule(__name__, target_needs="placement", spec_rows=("6.1",), targets=("mlu",))

# `gpu` in "/gpu:0", "gpu:0" and "/device:GPU:0".
GPU_DEVICE = re.compile(r"(?:(?<=[\"'/:])|^)gpu(?=:)", re.IGNORECASE)
STRING_TOKENS = ("STRING", "FSTRING_MIDDLE")  # the second from Python 3.12 on: a part of an f-string outside braces


@rule.call("tensorflow.device", *STRATEGIES, *DEVICE_SETTERS)
def rename_devices(site: Site) -> None:
    """Rename the GPU in the arguments of functions that take a device."""
    for value in argument_values(site.node):
        rename_strings(site, value)


@rule.call(*(f"{root}.*" for root in horovod.MODULES))
def rename_horovod_devices(site: Site) -> None:
    for keyword in site.node.keywords:
        if keyword.arg in ("device", "device_dense", "device_sparse"):
            rename_strings(site, keyword.value)


def rename_strings(site: Site, value: ast.expr) -> None:
    """Rename the GPU in the strings of an expression; for a variable, in the strings that are assigned to it."""
    if not isinstance(value, ast.Name):
        replace_gpu(site, value)
        return
    function = site.file.names.scope_of(value).node
    default = parameter_default(function, value.id) if isinstance(function, Function) else None
    texts = [text for text in (*bindings_of(site, value), default) if isinstance(text, ast.expr)]
    if not any(find_gpu_spans(site, text) for text in texts):
        return
    if any(isinstance(site.source.parents[use], ast.Compare) for use in find_reads(site, value)):
        site.request_review(
            f"{value.id} names a GPU and is compared with something: name the MLU in both places",
            zh=f"{value.id} 指定 GPU 且参与比较:请在两处都改为 MLU",
        )
        return
    for text in texts:
        replace_gpu(site, text)
    if default is not None:
        message, zh = f"make sure that callers pass no GPU for {value.id}", f"请确认调用者传入的 {value.id} 不是 GPU"
        site.advise(message, zh=zh, node=default)


def find_gpu_spans(site: Site, value: ast.expr) -> list[tuple[int, int]]:
    """Return the spans of `gpu` before a colon in the strings of an expression."""
    start, end = site.source.span(value)
    spans = []
    for token in site.source.tokens_between(start, end):
        if token.end <= end and tokenize.tok_name[token.kind] in STRING_TOKENS:
            spans += [
                (token.start + match.start(), token.start + match.end()) for match in GPU_DEVICE.finditer(token.text)
            ]
    return spans


def replace_gpu(site: Site, value: ast.expr) -> None:
    """Replace gpu by mlu in the strings of an expression, and report it."""
    spans = [span for span in find_gpu_spans(site, value) if mark_once(site, "mlu", span[0])]
    for start, end in spans:
        site.edit.replace(start, end, "MLU" if site.source.text[start:end].isupper() else "mlu")
    if spans:
        site.report_change("the device is an MLU", zh="设备改为 MLU", node=value)
