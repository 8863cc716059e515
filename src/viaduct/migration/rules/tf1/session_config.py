"""Let every session run its graph on the accelerator.

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

A graph goes to the device when its session carries the custom optimizer NpuOptimizer; remapping must be switched off.
A ConfigProto that the script has is filled where it is made, once for all its sessions; a session built within an
expression gets its config in front of the statement. Where statements cannot stand (a lambda, a comprehension, a
default, a decorator, a class body, behind a semicolon), where the value is not known, and with `--style wrapper`, the
vendor's helper `npu_config_proto(config_proto=…)` is written instead. Sessions that only restore, freeze or save stay
on the host, and so do those whose device_count says that they have no GPU.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _config_proto as proto
from viaduct.migration.rules.tf1._session_uses import stays_on_host
from viaduct.migration.sessions import METHOD_SLOTS, PLAIN, SLOTS

rule = Rule(__name__, spec="S1 S2 S3 S4 S6 K2", kind="mandatory", order=20)


@rule.call(*SLOTS)
def open_session(site: Site) -> None:
    configure(site, *SLOTS[site.name])


@rule.method(*{method for _, method in METHOD_SLOTS})
def open_by_method(site: Site) -> None:
    kind = site.values.kind(site.node.func.value)
    slot = METHOD_SLOTS.get((kind or "", site.name))
    if slot is not None:
        configure(site, *slot)
    elif kind is None and site.name in ("managed_session", "prepare_or_wait_for_session"):
        site.manual(
            f"if this is a Supervisor's `{site.name}`, its config needs NpuOptimizer and remapping OFF",
            zh=f"若此处是 Supervisor 的 `{site.name}`,其 config 需添加 NpuOptimizer 并关闭 remapping",
        )


@rule.call("tensorflow.train.MonitoredSession")
def give_creator(site: Site) -> None:
    """Without a session creator it would make one that knows no config."""
    creator = site.argument("session_creator", 0)
    if not is_none(creator):
        return  # a creator has its own config
    if site.unpacked or not proto.tensorflow_prefix(site):
        site.manual(
            "give MonitoredSession a ChiefSessionCreator whose config carries NpuOptimizer",
            zh="请为 MonitoredSession 传入 config 中带 NpuOptimizer 的 ChiefSessionCreator",
        )
        return
    maker = proto.tensorflow_name(site, "train.ChiefSessionCreator")
    site.set_argument("session_creator", f"{maker}(config={new_config(site)})", 0)
    say_configured(site)


@rule.node(ast.Call, words=("import *",))
def starred(site: Site) -> None:
    """`Session()` where TensorFlow and something else are imported by stars: it may be either's."""
    called = site.node.func.id if isinstance(site.node.func, ast.Name) else ""
    names = site.work.names
    if called not in ("Session", "InteractiveSession") or names.lookup(called, names.scope_of(site.node.func)):
        return
    if "tensorflow" in names.stars and site.qualified(site.node.func) not in SLOTS:
        site.manual(
            f"{called} may be TensorFlow's or another star import's: if it is TensorFlow's, its config needs "
            "NpuOptimizer and remapping OFF",
            zh=f"{called} 可能来自 TensorFlow 或其他 * 导入:若是前者,其 config 需带 NpuOptimizer 并关闭 remapping",
        )


@rule.reference(*PLAIN)
def session_as_value(site: Site) -> None:
    parent = site.source.parents[site.node]
    derived = isinstance(parent, ast.ClassDef) and site.node in parent.bases
    partial = isinstance(parent, ast.Call) and site.qualified(parent.func) == "functools.partial"
    if derived or partial or isinstance(parent, ast.arguments):
        site.manual(
            "sessions are made from this elsewhere: each needs a config with NpuOptimizer and remapping OFF",
            zh="会话在别处由此创建:每个会话的 config 都需带 NpuOptimizer 并关闭 remapping",
            risk="high",
        )


def configure(site: Site, keyword: str, position: int) -> None:
    value = site.argument(keyword, position)
    hidden = value is None and (site.unpacked or (position < 0 and len(site.node.args) > 10))
    if hidden or not site.editable:
        site.manual(
            f"it cannot be seen what `{keyword}` this session gets: it needs NpuOptimizer and remapping OFF",
            zh=f"无法看出该会话的 `{keyword}`:需带 NpuOptimizer 并关闭 remapping",
            risk="high",
        )
    elif is_none(value):
        if stays_on_host(site):
            return
        site.set_argument(keyword, new_config(site), position)
        say_configured(site)
    elif value is not None and is_ready(site, value):
        switch_remapping_off(site, value)
    elif value is not None and not stays_on_host(site):
        if without_device(site, value):
            say_off(site)
        else:
            fill_value(site, value)


def switch_remapping_off(site: Site, value: ast.expr) -> None:
    """In code that was migrated by hand: a config that carries NpuOptimizer and says nothing of remapping."""
    config = proto.held(site, value)
    if config is None or len(config.assigned) != 1 or ("remapping", config.assigned[0]) in site.work.seen:
        return
    added = proto.adding_statement(site, config, value)
    if added is None or "remapping" in site.source.text or "npu_init" in site.source.text:
        return  # set by somebody, if not at this place; importing npu_init sets it for every session
    site.work.seen[("remapping", config.assigned[0])] = None
    last = proto.last_setting(site, config, added)
    last = last if proto.ends_line(site, last) else added
    site.edit.after(
        last, [f"{config.text}.graph_options.rewrite_options.remapping = {proto.rewriter_config(site)}.OFF"]
    )
    site.changed(
        "remapping is switched off: it fuses operators into ones that the accelerator does not have",
        zh="关闭 remapping:它会融合出昇腾不支持的算子",
    )


def say_off(site: Site) -> None:
    site.manual(
        "device_count says that there is no GPU for this session: it was meant to stay off the accelerator, and so it "
        "does; if it should run there, take device_count out and give its config NpuOptimizer",
        zh="device_count 表明该会话不使用 GPU:保留在主机侧;若需在昇腾上执行,请删除 device_count 并添加 NpuOptimizer",
    )


def without_device(site: Site, value: ast.expr) -> bool:
    """`tf.ConfigProto(device_count={"GPU": 0})`, here or where the name was assigned."""
    config = proto.held(site, value)
    if config is not None and set_to_none(site, config, value):
        return True
    made = config.values if config is not None else [value]
    return bool(made) and all(proto.is_config_proto(site, one) and no_gpu(one) for one in made)


def set_to_none(site: Site, config: proto.Held, value: ast.expr) -> bool:
    """`config.device_count["GPU"] = 0`."""
    nodes = site.source.of_kind(ast.Assign) if "device_count" in site.source.text else []
    for one in nodes:
        target = one.targets[0] if isinstance(one, ast.Assign) and is_number(one.value, 0) else None
        if isinstance(target, ast.Subscript) and is_text(target.slice, "GPU"):
            same = proto.chain(site, target.value) == (*config.parts, "device_count")
            if same and proto.same_variable(site, config, one, value):
                return True
    return False


def is_number(value: ast.expr, number: int) -> bool:
    return isinstance(value, ast.Constant) and value.value == number


def is_text(value: ast.expr | None, text: str) -> bool:
    return isinstance(value, ast.Constant) and value.value == text


def no_gpu(call: ast.expr) -> bool:
    words = call.keywords if isinstance(call, ast.Call) else []
    counts = [word.value for word in words if word.arg == "device_count"]
    return any(
        is_text(key, "GPU") and is_number(value, 0)
        for one in counts
        if isinstance(one, ast.Dict)
        for key, value in zip(one.keys, one.values, strict=True)
    )


def is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def is_ready(site: Site, value: ast.expr) -> bool:
    """Whether the value is the accelerator's already, or is made so in the helper that returns it."""
    if site.values.kind(value) == "npu_config_proto" or from_helper(site, value) or from_npu_helper(site, value):
        return True
    config = proto.held(site, value)
    if config is None:
        return False
    if config.values and all(from_helper(site, one) or from_npu_helper(site, one) for one in config.values):
        return True
    return proto.carries_npu_optimizer(site, config, value) or is_given_to_helper(site, config, value)


def from_npu_helper(site: Site, value: ast.AST) -> bool:
    """A function of the project that adds NpuOptimizer itself, as in code that was migrated before."""
    helpers = site.work.project.npu_helpers
    if not helpers or not isinstance(value, ast.Call):
        return False
    name = site.qualified(value.func)
    method = f".{value.func.attr}" if name is None and isinstance(value.func, ast.Attribute) else ""
    return name in helpers or method in helpers


def is_given_to_helper(site: Site, config: proto.Held, value: ast.expr) -> bool:
    """`add_npu(config)` as a statement of its own, which fills the config that it is given."""
    if not site.work.project.npu_helpers:
        return False
    for call in site.source.of_kind(ast.Call):
        if isinstance(call, ast.Call) and from_npu_helper(site, call):
            given = [*call.args, *(word.value for word in call.keywords)]
            same = [one for one in given if ast.unparse(one) == config.text]
            if any(proto.same_variable(site, config, one, value) for one in same):
                return True
    return False


def from_helper(site: Site, value: ast.expr) -> bool:
    """A function of the project that gives a ConfigProto is edited itself, once (session_config_helper)."""
    name = site.qualified(value.func) if isinstance(value, ast.Call) else None
    project = site.work.project
    return bool(name) and name in project.config_helpers and project.returns.get(name or "") == "config_proto"


def fill_value(site: Site, value: ast.expr) -> None:
    """A config that is there: filled where it is assigned, taken out of the expression, or wrapped."""
    explicit = site.options.style == "explicit"
    config = proto.held(site, value) if explicit else None
    if config and config.values and all(can_fill(site, *pair) for pair in zip(*pairs(config), strict=True)):
        for assigned in config.assigned:
            fill_behind(site, config, assigned)
        say_configured(site)
    elif explicit and proto.is_config_proto(site, value) and can_hoist(site, value):
        place = site.source.statement(value)
        name = proto.local_name(site, place, "config")
        site.edit.before(place, [f"{name} = {site.text(value)}", *proto.filling(site, name, place)])
        site.edit.replace(*site.source.span(value), name)  # its comments went along
        say_configured(site)
    else:
        site.edit.node(value, wrapped(site, site.text(value)))
        say_configured(site)


def pairs(config: proto.Held) -> tuple[list[ast.stmt], list[ast.expr]]:
    return config.assigned, config.values


def can_fill(site: Site, assigned: ast.stmt, value: ast.expr) -> bool:
    """A plain `config = tf.ConfigProto(…)` on lines of its own."""
    plain = isinstance(assigned, ast.Assign | ast.AnnAssign) and assigned.value is value
    lines = proto.starts_line(site, assigned) and proto.ends_line(site, assigned)
    inside = isinstance(site.source.parents[assigned], ast.ClassDef)
    return plain and lines and not inside and proto.is_config_proto(site, value)


def can_hoist(site: Site, value: ast.expr) -> bool:
    place = proto.hoisting_place(site, value)
    return place is not None and not proto.binds_what_it_uses(place, value)


def fill_behind(site: Site, config: proto.Held, assigned: ast.stmt) -> None:
    if ("filled", assigned) in site.work.seen:
        return
    site.work.seen[("filled", assigned)] = None
    last = proto.last_setting(site, config, assigned)
    if not proto.ends_line(site, last):
        last = assigned
    site.edit.after(last, proto.filling(site, config.text, assigned))


def new_config(site: Site) -> str:
    """What to write where there is no config: the name of one made in front, or the helper's call."""
    place = proto.hoisting_place(site, site.node) if site.options.style == "explicit" else None
    if place is None:
        return wrapped(site, "")
    name = made_before(site, place)
    if name is None:
        name = proto.local_name(site, place, "config")
        made = f"{name} = {proto.tensorflow_name(site, 'ConfigProto')}()"
        site.edit.before(place, [made, *proto.filling(site, name, place)])
        site.work.answers.setdefault(("configs", site.source.function(place)), []).append((place, name))
    return name


def made_before(site: Site, place: ast.stmt) -> str | None:
    """A config made for an earlier session of the same function that surely has run by now."""
    above = [place, *(node for node in site.source.ancestors(place) if isinstance(node, ast.stmt))]
    for made, name in site.work.answers.get(("configs", site.source.function(place)), ()):
        block = site.source.block(made)
        if any(one in block and block.index(one) >= block.index(made) for one in above):
            return str(name)
    return None


def wrapped(site: Site, text: str) -> str:
    if ("wrapper",) not in site.work.seen:
        site.work.seen[("wrapper",)] = None
        site.advice(
            "npu_config_proto also switches Grappler's memory_optimization off; statements of one's own leave it on",
            zh="npu_config_proto 还会关闭 memory_optimization;显式写法则保持默认开启",
        )
    return f"{site.need('npu_config_proto')}({f'config_proto={text}' if text else ''})"


def say_configured(site: Site) -> None:
    site.changed(
        "the session carries NpuOptimizer and has remapping off: its graph runs on the accelerator",
        zh="会话已添加 NpuOptimizer 并关闭 remapping:计算图在昇腾 AI 处理器上执行",
    )
