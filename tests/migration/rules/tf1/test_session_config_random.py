"""Random scripts, really run after migration: every session has a config with NpuOptimizer once, and remapping off.

TensorFlow is a stand-in of a few lines here: protos that remember what was put into them.
"""

from __future__ import annotations

import random
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from migration.checking import migrate_source


class Proto(SimpleNamespace):
    """Protobuf message: a field is created when it is read; `add` appends to a repeated one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Repeated() if name == "custom_optimizers" else Map() if name == "parameter_map" else Proto()
        setattr(self, name, made)
        return made


class Map(dict[str, Proto]):
    def __missing__(self, key: str) -> Proto:
        self[key] = Proto()
        return self[key]


class Repeated(list[Proto]):
    def add(self) -> Proto:
        self.append(Proto())
        return self[-1]


class Session:
    opened: ClassVar[list[Session]] = []

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        self.config = config
        Session.opened.append(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...
    def run(self, value: int) -> int:
        return value

    def close(self) -> None: ...


def wrap(config_proto: Any = None) -> Any:
    """Add the settings that are missing, like the vendor's helper."""
    config = config_proto if config_proto is not None else Proto()
    options = config.graph_options.rewrite_options
    if not options.custom_optimizers:
        options.custom_optimizers.add().name = "NpuOptimizer"
    options.remapping = "OFF"
    return config


CONFIGS = [
    "",
    "config=conf",
    "config=tf.ConfigProto(a=n)",
    "config=top",
    "config=make()",
    "config=None",
    "'', None, conf",
]
CONFIGS += ["config=given", "config=conf if n else None", "'', None, tf.ConfigProto(b=top.c)"]
USES = [
    "s = tf.Session({})\n\ts.run(n)",
    "with tf.Session({}) as s:\n\t\tout.append(s.run(n))",
    "out.append(tf.Session({}).run(n))",
]
USES += ["for i in range(2):\n\t\twith scope, tf.Session({}) as s:\n\t\t\tout.append(s.run(i))"]
USES += ["if n: s = tf.Session({})", "t = [tf.Session({}) for _ in range(2)]", "f = lambda: tf.Session({})\n\tf(); f()"]
USES += ["if n:\n\t\tpass\n\telif tf.Session({}):\n\t\tout.append(3)", "def g(s=tf.Session({})):\n\t\treturn s\n\tg()"]
USES += ["while out.append(tf.Session({}).run(n)) or n < 2:\n\t\tn += 1", "out.append(4); s = tf.Session({})  # two"]
USES += ["try:\n\t\ts = tf.Session({}); s.run(n)\n\tfinally:\n\t\tout.append(n)"]


def program(rng: random.Random) -> str:
    lines = ["import tensorflow as tf", "top = tf.ConfigProto(x=1)", "top.gpu_options.allow_growth = True  # grow"]
    lines += ["def make():", "\treturn tf.ConfigProto(made=True)"]
    lines += ["def f(n, out, scope, given):", "\tconf = tf.ConfigProto()", "\tconf.allow_soft_placement = True"]
    lines += ["\tif n > 5:", "\t\tconf = tf.ConfigProto(more=n)"] if rng.random() < 0.5 else []
    for _ in range(rng.randint(1, 5)):
        lines.append("\t" + rng.choice(USES).format(rng.choice(CONFIGS)))
    lines += ["\treturn out"]
    return "\n".join(lines).replace("\t", rng.choice(["\t", "  ", "    "])) + "\n"


class Scope:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def run(text: str, n: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    tensorflow, npu_init, rewriter, init = (ModuleType(name) for name in ("tensorflow", "npu_init", "rewriter", "npu"))
    tensorflow.Session, tensorflow.ConfigProto = Session, Proto  # type: ignore[attr-defined]
    npu_init.npu_config_proto = wrap  # type: ignore[attr-defined]
    rewriter.RewriterConfig = SimpleNamespace(OFF="OFF")  # type: ignore[attr-defined]
    init.npu_ops = init  # type: ignore[attr-defined]
    for name, module in (
        ("tensorflow", tensorflow),
        ("tensorflow.core", init),
        ("tensorflow.core.protobuf", init),
        ("tensorflow.core.protobuf.rewriter_config_pb2", rewriter),
        ("npu_bridge", init),
        ("npu_bridge.estimator", init),
        ("npu_bridge.estimator.npu_ops", init),
        ("npu_bridge.npu_init", npu_init),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {}
    Session.opened.clear()
    exec(text, names)
    found: list[int] = names["f"](n, [], Scope(), Proto())
    return found + names["f"](n, [], Scope(), Proto())


@pytest.mark.parametrize("style", ["explicit", "wrapper"])
def test_random_scripts_open_only_sessions_for_the_device(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, opened = random.Random(7), 0
    for _ in range(30):
        text = program(rng)
        after = migrate_source(text, style=style).after.decode()
        for n in (0, 1, 7):
            assert run(text, n, monkeypatch) == run(after, n, monkeypatch), after
            opened += len(Session.opened)
            for session in Session.opened:
                options = session.config.graph_options.rewrite_options
                assert [optimizer.name for optimizer in options.custom_optimizers] == ["NpuOptimizer"], after
                assert options.remapping == "OFF", after
    assert opened > 100
