"""Name the MLU where the script names a GPU.

     import tensorflow as tf
    -with tf.device("/gpu:%d" % index):
    +with tf.device("/mlu:%d" % index):
         x = tf.zeros([2])

Cambricon's build of TensorFlow 1.15 knows the device type MLU, so a script changes little: device strings of tf.device,
of strategies, of Horovod and of device setters. A string that is chosen elsewhere is changed where it is assigned; one
that is also compared with something needs manual review.
"""

from __future__ import annotations

import ast
import re
import tokenize

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1._optimizers import loads
from viaduct.migration.rules.tf1._strategies import STRATEGIES

rule = Rule(__name__, spec="6.1", kind="mandatory", targets=("mlu",))
EXAMPLE_OPTIONS = {"to": "mlu"}

GPU = re.compile(r"(?:(?<=[\"'/:])|^)gpu(?=:)", re.IGNORECASE)
SETTERS = ("tensorflow.train.replica_device_setter", "tensorflow.contrib.framework.replica_device_setter")
STRINGS = ("STRING", "FSTRING_MIDDLE")


@rule.call("tensorflow.device", *STRATEGIES, *SETTERS)
def rename_devices(site: Site) -> None:
    for value in [*site.node.args, *(keyword.value for keyword in site.node.keywords)]:
        rename_strings(site, value)


@rule.call(*(f"{root}.*" for root in horovod.ROOTS))
def rename_horovod_devices(site: Site) -> None:
    for keyword in site.node.keywords:
        if keyword.arg in ("device", "device_dense", "device_sparse"):
            rename_strings(site, keyword.value)


def rename_strings(site: Site, value: ast.expr) -> None:
    """Rename the GPU in the strings of an expression, or in those that its name is assigned."""
    if not isinstance(value, ast.Name):
        replace_gpu(site, value)
        return
    default = default_of(site, value)
    bound = site.work.names.lookup(value.id, site.work.names.scope_of(value)) or []
    texts = [what for what in bound if isinstance(what, ast.expr)] + ([default] if default is not None else [])
    if not any(gpu_spans(site, text) for text in texts):
        return
    if any(isinstance(site.source.parents[use], ast.Compare) for use in loads(site, value)):
        report_compared(site, value.id)
        return
    for text in texts:
        replace_gpu(site, text)
    if default is not None:
        message, zh = f"make sure that callers pass no GPU for {value.id}", f"请确认调用者传入的 {value.id} 不是 GPU"
        site.advice(message, zh=zh, node=default)


def report_compared(site: Site, name: str) -> None:
    site.manual(
        f"{name} names a GPU and is compared with something: name the MLU in both places",
        zh=f"{name} 指定 GPU 且参与比较:请在两处都改为 MLU",
    )


def default_of(site: Site, name: ast.Name) -> ast.expr | None:
    """Return the default of a parameter."""
    function = site.work.names.scope_of(name).node
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return None
    entries = [*function.args.posonlyargs, *function.args.args]
    given = dict(zip([entry.arg for entry in reversed(entries)], reversed(function.args.defaults), strict=False))
    given |= {
        parameter.arg: value
        for parameter, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value
    }
    return given.get(name.id)


def gpu_spans(site: Site, value: ast.expr) -> list[tuple[int, int]]:
    """Return the spans at which a string of the expression says gpu."""
    start, end = site.source.span(value)
    found = []
    for token in site.source.tokens_between(start, end):
        if token.end <= end and tokenize.tok_name[token.kind] in STRINGS:
            found += [(token.start + match.start(), token.start + match.end()) for match in GPU.finditer(token.text)]
    return found


def replace_gpu(site: Site, value: ast.expr) -> None:
    done = False
    for start, end in gpu_spans(site, value):
        if ("mlu", start) not in site.work.seen:
            site.work.seen[("mlu", start)] = None
            written = site.source.text[start:end]
            site.edit.replace(start, end, "MLU" if written.isupper() else "mlu")
            done = True
    if done:
        site.changed("the device is an MLU", zh="设备改为 MLU", node=value)
