"""Add NpuOptimizer to the config of every session, so that its graph runs on the NPU.

     import tensorflow as tf
    +from npu_bridge.estimator import npu_ops
    +from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
     init = tf.global_variables_initializer()
    -sess = tf.Session()
    +config = tf.ConfigProto()
    +custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
    +custom_op.name = "NpuOptimizer"
    +custom_op.parameter_map["use_off_line"].b = True
    +config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    +sess = tf.Session(config=config)
     sess.run(init)

Remapping must be switched off: it fuses operators into ones that the NPU does not have. An existing ConfigProto is
extended after its assignment, once for all its sessions; a new one is created before the statement of the session.
Ascend's helper `npu_config_proto(config_proto=…)` is used with `--style wrapper`, for a config of unknown origin, and
where no statement can be inserted: in a lambda, a comprehension, a default, a decorator, a class body, an `elif`, after
a semicolon. Sessions that only restore, freeze or save stay on the host, as do sessions whose device_count allows no
GPU.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.limits import REMAPPING_FUSES
from viaduct.migration.lookups import mark_once, plain_name
from viaduct.migration.predicates import is_none_or_absent
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as config_proto
from viaduct.migration.rules.tf1._insertion import ends_line
from viaduct.migration.rules.tf1._session_configs import (
    add_npu_optimizer,
    allows_no_gpu,
    create_config,
    has_npu_optimizer,
    report_configured,
    report_host_session,
)
from viaduct.migration.rules.tf1._session_uses import advise_if_only_for_files
from viaduct.migration.rules.tf1._tensorflow_names import (
    find_tensorflow_prefix,
    render_rewriter_config,
    render_tensorflow_name,
)
from viaduct.migration.sessions import CONFIG_ARGUMENTS, CONFIG_ARGUMENTS_BY_KIND_AND_METHOD, SESSION_CLASSES

rule = Rule(
    __name__, target_needs="sessions", spec_rows=("S1", "S2", "S3", "S4", "S6", "K2"), after=("horovod_devices",)
)

NPU_INIT_IMPORT = re.compile(r"npu_bridge\.npu_init|import npu_init")


@rule.call(*CONFIG_ARGUMENTS)
def configure_new_session(site: Site) -> None:
    configure_session(site, *CONFIG_ARGUMENTS[site.name])


@rule.method(*{method for _, method in CONFIG_ARGUMENTS_BY_KIND_AND_METHOD})
def configure_from_method(site: Site) -> None:
    kind = site.values.kind(site.node.func.value)
    slot = CONFIG_ARGUMENTS_BY_KIND_AND_METHOD.get((kind or "", site.name))
    if slot is not None:
        configure_session(site, *slot)
    elif kind is None and site.name in ("managed_session", "prepare_or_wait_for_session"):
        site.request_review(
            f"if this is a Supervisor's `{site.name}`, its config needs NpuOptimizer and remapping OFF",
            zh=f"若此处是 Supervisor 的 `{site.name}`,其 config 需添加 NpuOptimizer 并关闭 remapping",
        )


@rule.call("tensorflow.train.MonitoredSession")
def add_creator(site: Site) -> None:
    """Give MonitoredSession a session creator with a config; the default creator has none."""
    if not is_none_or_absent(site.argument("session_creator", 0)):
        return
    if site.has_unpacked_arguments or not find_tensorflow_prefix(site):
        site.request_review(
            "give MonitoredSession a ChiefSessionCreator whose config has NpuOptimizer",
            zh="请为 MonitoredSession 传入 config 中带 NpuOptimizer 的 ChiefSessionCreator",
        )
        return
    creator_class = render_tensorflow_name(site, "train.ChiefSessionCreator")
    site.set_argument("session_creator", f"{creator_class}(config={create_config(site)})", 0)
    report_configured(site)


@rule.node(ast.Call, only_if_file_contains=("import *",))
def report_star_import(site: Site) -> None:
    """Report a `Session()` that may come from TensorFlow or from another star import."""
    class_name = plain_name(site.node.func)
    names = site.file.names
    if class_name not in ("Session", "InteractiveSession") or names.lookup(class_name, names.scope_of(site.node.func)):
        return
    if "tensorflow" in names.stars and site.qualified_name(site.node.func) not in CONFIG_ARGUMENTS:
        site.request_review(
            f"{class_name} may be TensorFlow's or another star import's: if it is TensorFlow's, its config needs "
            "NpuOptimizer and remapping OFF",
            zh=f"{class_name} 可能来自 TensorFlow 或其他 * 导入:若是前者,其 config 需带 NpuOptimizer 并关闭 remapping",
        )


@rule.reference(*SESSION_CLASSES)
def report_session_class(site: Site) -> None:
    """Report a session class as a base class, in functools.partial, or as a default."""
    parent = site.source.parents[site.node]
    is_base = isinstance(parent, ast.ClassDef) and site.node in parent.bases
    is_partial = isinstance(parent, ast.Call) and site.qualified_name(parent.func) == "functools.partial"
    if is_base or is_partial or isinstance(parent, ast.arguments):
        site.request_review(
            "other code creates sessions of this class: each needs a config with NpuOptimizer and remapping OFF",
            zh="会话在别处由此创建:每个会话的 config 都需带 NpuOptimizer 并关闭 remapping",
            risk="high",
        )


def configure_session(site: Site, keyword: str, position: int) -> None:
    """Give a session a config for the NPU, passed to the call as the argument `keyword` at `position`."""
    value = site.argument(keyword, position)
    # position -1: usually a keyword argument, but many positional arguments may include it
    is_hidden = value is None and (site.has_unpacked_arguments or (position < 0 and len(site.node.args) > 10))
    if is_hidden or not site.is_editable:
        site.request_review(
            f"the `{keyword}` of this session cannot be seen or edited here: it needs NpuOptimizer and remapping OFF",
            zh=f"此处无法看出或改写该会话的 `{keyword}`:需带 NpuOptimizer 并关闭 remapping",
            risk="high",
        )
    elif is_none_or_absent(value):
        if advise_if_only_for_files(site):
            return
        site.set_argument(keyword, create_config(site), position)
        report_configured(site)
    elif value is not None and has_npu_optimizer(site, value):
        switch_remapping_off(site, value)
    elif value is not None and not advise_if_only_for_files(site):
        if allows_no_gpu(site, value):
            report_host_session(site)
        else:
            add_npu_optimizer(site, value)


def switch_remapping_off(site: Site, value: ast.expr) -> None:
    """Switch remapping off for a config, assigned once, that gets a custom optimizer and does not set remapping.

    A file that imports npu_init stays: newer releases of it switch remapping off for every session.
    """
    config = config_proto.find_config_variable(site, value)
    if config is None or len(config.assignments) != 1 or NPU_INIT_IMPORT.search(site.source.text):
        return
    if sets_remapping(site, config, value):
        return
    adding_statement = config_proto.find_adding_statement(site, config, value)
    if adding_statement is None or not mark_once(site, "remapping", config.assignments[0]):
        return
    last = config_proto.find_last_setting(site, config.parts, adding_statement)
    last = last if ends_line(site, last) else adding_statement
    switch = f"{config.text}.graph_options.rewrite_options.remapping = {render_rewriter_config(site)}.OFF"
    site.edit.insert_after(last, [switch])
    english, chinese = REMAPPING_FUSES
    site.report_change(f"{english}: it is switched off", zh=f"{chinese}：已关闭")


def sets_remapping(site: Site, config: config_proto.ConfigVariable, value: ast.expr) -> bool:
    """Return True if the file sets the field `remapping` of a config, directly or through a name for its options."""
    field = (*config.parts, "graph_options", "rewrite_options", "remapping")
    return any(
        config_proto.get_field_path(site, node) == field and config_proto.is_same_variable(site, config, node, value)
        for node in site.source.attributes.get("remapping", ())
    )
