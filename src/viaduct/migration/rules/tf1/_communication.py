"""Tests whether a script needs collective communication, and the function `init_npu` that rules write to start it."""

from __future__ import annotations

import ast

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import COLLECTIVE_PREFIXES, full_name
from viaduct.migration.lookups import contains_call, mark_once
from viaduct.migration.options import Options
from viaduct.migration.project_usage import INITIALIZERS
from viaduct.migration.rule import Site
from viaduct.migration.rules.tf1._tensorflow_names import (
    find_tensorflow_prefix,
    import_module,
    render_rewriter_config,
    render_tensorflow_name,
)

OPS, PLUGIN = full_name("npu_ops"), full_name("npu_plugin")
START_CALLS = (f"{OPS}.initialize_system", f"{PLUGIN}.npu_resource_init", full_name("init_resource"))
STOP_CALLS = (f"{OPS}.shutdown_system", f"{PLUGIN}.npu_resource_shutdown", full_name("shutdown_resource"))


def needs_communication(options: Options) -> bool:
    """Return True if migrated scripts ask hccl, the NPU's collectives, for ranks: it must be started before."""
    return options.distributed and options.rank == NPU.backend


def asks_for_ranks(site: Site) -> bool:
    """Return True if this file, or one that it imports, asks hccl for ranks now or after its migration."""
    is_asking = any(name.startswith(COLLECTIVE_PREFIXES) for name in site.file.index.calls)
    return is_asking or bool(site.file.project.all_imports(site.file.path) & find_asking_files(site))


def find_asking_files(site: Site) -> set[str]:
    """Return the files that ask hccl for ranks.

    If this file or one that it imports trains, these include the files that initialise variables: there the rule
    distribute_broadcast adds a broadcast, which asks for ranks.
    """
    project = site.file.project
    if not project.all_imports(site.file.path) & project.training_files:
        return project.rank_files
    return project.rank_files.union(*(project.files_calling.get(name, set()) for name in INITIALIZERS))


def ensure_init_function(site: Site, near: ast.stmt) -> str:
    """Return the name of the file's function that returns a session and the operation that starts communication.

    If the file has none, write the function before the top-level statement that contains `near`.
    """
    defined = find_init_function(site)
    if defined is not None:
        return defined
    name = site.reserve_name("init_npu")
    mark_once(site, "init_npu", name)  # for find_init_function, until the file is parsed again
    body, unit = site.source.tree.body, site.source.indent_unit
    position = next(body.index(parent) for parent in [near, *site.source.ancestors(near)] if parent in body)
    lines = ["", "", f"def {name}():", *(f"{unit}{line}".rstrip() for line in render_init_body(site))]
    if position:
        site.edit.insert_after(body[position - 1], lines)
    else:
        site.edit.insert_before(body[0], [*lines[2:], "", ""])
    return name


def render_init_body(site: Site) -> list[str]:
    rewrite = "config.graph_options.rewrite_options"
    if not find_tensorflow_prefix(site):
        import_module(site, "tensorflow", "tf")
    return [
        '"""A session, and the operation that starts collective communication when it is run."""',
        f"npu_init = {site.import_npu_name('npu_ops')}.initialize_system()",
        f"config = {render_tensorflow_name(site, 'ConfigProto')}()",
        f"{rewrite}.remapping = {render_rewriter_config(site)}.OFF",
        f"custom_op = {rewrite}.custom_optimizers.add()",
        'custom_op.name = "NpuOptimizer"',
        'custom_op.parameter_map["use_off_line"].b = True',
        f"init_sess = {render_tensorflow_name(site, 'Session')}(config=config)",
        "return init_sess, npu_init",
    ]


def starts_communication(site: Site, function: ast.AST) -> bool:
    """Return True if a function calls `npu_ops.initialize_system`."""
    return contains_call(site, function, (f"{OPS}.initialize_system",))


def find_init_function(site: Site) -> str | None:
    """Return the name of the top-level function that starts communication, also of one just written; else None."""
    for node in site.source.tree.body:
        if isinstance(node, ast.FunctionDef) and starts_communication(site, node):
            return node.name
    return next((str(mark[1]) for mark in site.file.handled if mark[0] == "init_npu"), None)
