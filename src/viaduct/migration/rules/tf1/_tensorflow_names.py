"""Names that rules write into a TensorFlow script: names of TensorFlow and other modules, and of new variables."""

from __future__ import annotations

import ast
import re

from viaduct.migration.lookups import mark_once
from viaduct.migration.rule import Site

REWRITER = "tensorflow.core.protobuf.rewriter_config_pb2"
COMPAT_IMPORT = re.compile(r"^import tensorflow\.compat\.v1 as (\w+)", re.MULTILINE)
DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]*")


def find_tensorflow_prefix(site: Site) -> str:
    """Return the prefix of TensorFlow's names at the site or else in the file: `tf.`, `tf.compat.v1.`, ""."""
    if isinstance(site.node, ast.Call) and site.name.startswith("tensorflow."):
        text, name = site.text_of(site.node.func), site.name.removeprefix("tensorflow.")
        if text.endswith("." + name) and DOTTED_NAME.fullmatch(text):
            return text[: -len(name)]
    compat_import = COMPAT_IMPORT.search(site.source.text)
    alias = compat_import.group(1) if compat_import else site.file.names.local_name("tensorflow")
    if alias is None:
        return ""
    return f"{alias}.compat.v1." if f"{alias}.compat.v1." in site.source.text else f"{alias}."


def render_tensorflow_name(site: Site, name: str) -> str:
    """Return a TensorFlow name with the file's prefix: `tf.ConfigProto`; import the name if the file has no prefix."""
    prefix = find_tensorflow_prefix(site)
    return prefix + name if prefix else site.file.import_name("tensorflow", name)


def import_module(site: Site, module: str, alias: str = "") -> str:
    """Import a module, as `alias`, unless the file does so already; return its local name."""
    imported = site.file.names.local_name(module)
    if imported is not None:
        return imported
    local = reserve_npu_name(site, alias or module)
    site.file.request_import(local, module)
    return local


def render_rewriter_config(site: Site) -> str:
    """Return `RewriterConfig`, or `rewriter_config_pb2.RewriterConfig` where the file imports that module."""
    module = site.file.names.local_name(REWRITER) if "rewriter_config_pb2" in site.source.text else None
    return f"{module}.RewriterConfig" if module else site.import_npu_name("RewriterConfig")


def render_bytes(site: Site, text: str) -> str:
    """Return code for this string as bytes, the type of protobuf's `s` fields."""
    quoted = f'"{text}"' if text.isascii() and not set(text) & set('"\\') else repr(text)
    alias = find_tensorflow_prefix(site).removesuffix("compat.v1.")
    return f"{alias}compat.as_bytes({quoted})" if alias else f"{quoted}.encode()"


def reserve_local_name(site: Site, at: ast.AST, wanted: str) -> str:
    """Reserve and return a name that is free in the function around `at`; outside functions free in the file."""
    function = site.source.function_around(at)
    if function is None:
        return reserve_npu_name(site, wanted)
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Name | ast.arg)]
    used = {node.id if isinstance(node, ast.Name) else node.arg for node in nodes}
    candidates = [wanted, f"npu_{wanted}", *(f"npu_{wanted}_{number}" for number in range(2, 100))]
    # the mark reserves the name until the file is parsed again
    return next(name for name in candidates if name not in used and mark_once(site, "name", function, name))


def reserve_npu_name(site: Site, wanted: str) -> str:
    """Reserve and return a name if nothing in the file has it, else one with the prefix `npu_`."""
    if wanted in site.file.names.used_names:
        return site.reserve_name(f"npu_{wanted}")
    site.file.names.used_names.add(wanted)
    return wanted
