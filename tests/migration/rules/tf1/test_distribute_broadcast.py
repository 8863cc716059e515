from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source, migrate_text

HEAD = "import tensorflow as tf\n"


MODEL = (
    HEAD
    + """
def build(x):
    return tf.train.AdamOptimizer(0.1).minimize(tf.reduce_mean(x))
def build_all(x):
    init = tf.global_variables_initializer()
    return build(x), init
def make_init():
    return tf.group(tf.global_variables_initializer(), tf.tables_initializer())
class Net:
    def __init__(self):
        self.start_op = tf.global_variables_initializer()
    def initialiser(self):
        return tf.global_variables_initializer()
ALL = tf.global_variables_initializer()
"""
)
BROADCAST = "bcast_op = tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])"
OTHERWISE_NAMED = "import tensorflow as tf\ndef build(loss):\n    return tf.train.AdamOptimizer(1).minimize(loss)\n"


@pytest.mark.parametrize(
    "source",
    [
        "with tf.Session() as sess:\n    sess.run(tf.global_variables_initializer())\n",  # nothing trains here
        "opt.minimize(l)\ndef evaluate():\n    sess.run(tf.global_variables_initializer())\n",
        "import subprocess\nopt.minimize(l)\nsess.run(tf.local_variables_initializer())\nsubprocess.run(init)\n",
        "from npu_bridge.hccl import hccl_ops\nopt.minimize(l)\nsess.run(tf.global_variables_initializer())\n"
        "sess.run([hccl_ops.broadcast([v], 0) for v in vs])\n",
    ],
)
def test_sessions_that_do_not_train_or_broadcast_already_stay(source: str) -> None:
    check_noop("distribute_broadcast", HEAD + source, distributed=True)


@pytest.mark.parametrize(
    "opened",
    [
        "s = tf.Session(graph=g)\n",
        "s = tf.Session('', g)\n",
        "with tf.Graph().as_default():\n    s = tf.Session()\n",
        "s = somewhere.opened()\n",
    ],
)
def test_a_session_with_its_own_graph_gets_the_broadcast_in_that_graph(opened: str) -> None:
    source = HEAD + f"opt.minimize(l)\n{opened}s.run(tf.global_variables_initializer())\n"
    text = migrate_text(source, "distribute_broadcast", distributed=True)
    op = "tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])"
    assert text.endswith(f"with s.graph.as_default():\n    bcast_op = {op}\ns.run(bcast_op)\n")


@pytest.mark.parametrize(
    "run",
    [
        "if rank == 0:\n    s.run(init)\n",
        "g.finalize()\ns.run(init)\n",
        "start = lambda: s.run(init)\n",
        "s.run(tf.variables_initializer(new))\n",
        "if s.run(init) is None:\n    pass\n",
    ],
)
def test_a_run_after_which_nothing_can_be_inserted_needs_review(run: str) -> None:
    source = HEAD + f"opt.minimize(l)\ninit = tf.global_variables_initializer()\n{run}"
    check_says("distribute_broadcast", source, "manual", "same values", distributed=True)


@pytest.mark.parametrize("folder", ["", "src/", "src/deep/"])
@pytest.mark.parametrize(
    ("imported", "before", "later"),
    [
        ("from model import build", "with tf.Session() as s:\n    s.run(tf.global_variables_initializer())\n", "    s"),
        ("import model", "s = tf.Session()\ns.run(model.make_init())\n", "s"),
        ("from model import *", "s = tf.Session()\ns.run(make_init())\n", "s"),
        ("from model import ALL as first", "s = tf.InteractiveSession()\ns.run([first, other])\n", "s"),
        ("import model as m", "op, go = m.build_all(1)\ns = tf.Session()\ns.run(go)\n", "s"),
        ("from model import Net", "net = Net()\ns = tf.Session()\ns.run(net.start_op)\n", "s"),
        ("from model import Net", "net = Net()\ns = tf.Session()\ns.run(net.initialiser())\n", "s"),
        ("import model", "def start(s, go):\n    s.run(go)\nstart(x, tf.global_variables_initializer())\n", "    s"),
    ],
)
def test_the_optimizer_may_be_in_another_file(folder: str, imported: str, before: str, later: str) -> None:
    text = migrate_text(
        f"{HEAD}{imported}\n{before}",
        "distribute_broadcast",
        path=f"{folder}train.py",
        others={f"{folder}model.py": MODEL},
        distributed=True,
    )
    assert BROADCAST in text
    assert f"{later}.run(bcast_op)\n" in text


def test_a_file_without_tensorflow_may_connect_model_and_session() -> None:
    helper = "from tensorflow import Session, global_variables_initializer as first\ndef opened():\n"
    helper += "    sess = Session()\n    sess.run(first())\n    return sess\n"
    others = {
        "app/model.py": MODEL,
        "app/main.py": "from . import util\nfrom .model import build\nbuild(util.opened())\n",
    }
    text = migrate_text(helper, "distribute_broadcast", path="app/util.py", others=others, distributed=True)
    assert "    sess.run(bcast_op)\n    return sess\n" in text


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("eval.py", "import model\nwith tf.Session() as s:\n    s.run(tf.global_variables_initializer())\n"),
        ("other.py", "with tf.Session() as s:\n    s.run(tf.global_variables_initializer())\n"),
        ("data.py", "import model\ns.run(iterator.initializer)\ns.run(tf.tables_initializer())\n"),
        ("train.py", "import model\ndef run_test(s):\n    s.run(tf.global_variables_initializer())\n"),
        ("train.py", "import model, hv\nwith tf.Session() as s:\n    s.run(tf.global_variables_initializer())\n"),
        ("train.py", "import model, es\nwith tf.Session() as s:\n    s.run(tf.global_variables_initializer())\n"),
    ],
)
def test_sessions_of_other_programs_stay(path: str, source: str) -> None:
    others = {
        "model.py": MODEL,
        "hv.py": "import horovod.tensorflow as hvd\nop = hvd.broadcast_global_variables(0)\n",
        "es.py": HEAD + "e = tf.estimator.Estimator(f)\n",
    }
    check_noop("distribute_broadcast", HEAD + source, path=path, others=others, distributed=True)


def test_a_canned_estimator_gets_the_hook_and_an_npu_estimator_does_not() -> None:
    head = HEAD + "def f():\n    e = tf.estimator.DNNClassifier([8], columns)\n"
    text = migrate_text(head + "    e.train(fn, steps=2)\n", "distribute_broadcast", distributed=True)
    assert "e.train(fn, steps=2, hooks=[NPUBroadcastGlobalVariablesHook(0, get_rank_id())])" in text
    check_noop("distribute_broadcast", HEAD + "e = tf.estimator.Estimator(f)\ne.train(fn)\n", distributed=True)


@pytest.mark.parametrize("call", ["tf.train.Supervisor(logdir=d)", "tf.contrib.slim.learning.train(op, d)"])
def test_sessions_that_a_training_loop_opens_need_review(call: str) -> None:
    check_says(
        "distribute_broadcast", HEAD + f"opt.minimize(l)\ns = {call}\n", "manual", "same values", distributed=True
    )


@pytest.mark.parametrize("name", ["test", "run_test", "evaluate_once", "infer_demo"])
@pytest.mark.parametrize(
    "fetch", ["train_op", "[loss, self.train_step]", "model.optimizer", "fetches={'t': net.train}"]
)
def test_a_function_that_trains_broadcasts_whatever_its_name(name: str, fetch: str) -> None:
    text = (
        f"{OTHERWISE_NAMED}def {name}(self, model, net, loss, train_op):\n    with tf.Session() as s:\n"
        f"        s.run(tf.global_variables_initializer())\n        s.run({fetch})\n"
    )
    assert "s.run(bcast_op)" in migrate_source(text, "distribute_broadcast", distributed=True).after.decode()


@pytest.mark.parametrize("fetch", ["accuracy", "[loss, train_accuracy]", "self.trainable", "self.train_writer.summary"])
def test_a_function_that_evaluates_does_not_broadcast(fetch: str) -> None:
    text = (
        f"{OTHERWISE_NAMED}def evaluate(self, loss, accuracy, train_accuracy):\n    with tf.Session() as s:\n"
        f"        s.run(tf.global_variables_initializer())\n        s.run({fetch})\n"
    )
    assert "bcast_op" not in migrate_source(text, "distribute_broadcast", distributed=True).after.decode()


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("MonitoredTrainingSession()", "MonitoredTrainingSession(hooks=[HOOK])"),
        ("MonitoredTrainingSession(hooks=[a, b], config=c)", "MonitoredTrainingSession(hooks=[HOOK, a, b], config=c)"),
        ("MonitoredTrainingSession(hooks=h)", "MonitoredTrainingSession(hooks=[HOOK] + list(h or []))"),
        ("SingularMonitoredSession([])", "SingularMonitoredSession([HOOK])"),
        ("MonitoredSession(creator)", "MonitoredSession(creator, hooks=[HOOK])"),
    ],
)
def test_a_monitored_session_gets_the_hook(before: str, later: str) -> None:
    text = migrate_text(
        HEAD + f"def train():\n    opt.minimize(l)\n    return tf.train.{before}\n", "V4", distributed=True
    )
    assert later.replace("HOOK", "NPUBroadcastGlobalVariablesHook(0, get_rank_id())") in text


def test_an_initialiser_that_is_run_with_a_dict_gets_a_broadcast_with_the_same_dict() -> None:
    source = HEAD + "opt.minimize(l)\nsess = tf.Session()\ntf.global_variables_initializer().run({x: 1}, sess)\n"
    assert "bcast_op.run({x: 1}, sess)" in migrate_text(source, distributed=True)
