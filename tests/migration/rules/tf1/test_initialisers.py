"""Initialisers of all variables, and where they are run."""

from __future__ import annotations

import pytest

from migration.checking import check_says, migrate_text

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


def test_a_class_may_keep_the_session_and_the_initialiser() -> None:
    source = (
        HEAD + "from model import Net\nclass Trainer:\n    def __init__(self):\n        self.net = Net()\n"
        "        self.sess = tf.Session()\n    def start(self):\n        self.sess.run(self.net.start_op)\n"
        "    def again(self):\n        self.sess.run(self.net.initialiser())\n"
    )
    text = migrate_text(source, "distribute_broadcast", path="train.py", others={"model.py": MODEL}, distributed=True)
    scope = f"        with self.sess.graph.as_default():\n            {BROADCAST}\n        self.sess.run(bcast_op)\n"
    assert text.count(scope) == 2


@pytest.mark.parametrize(
    "source",
    [
        "s.run(ops['init'])\n",
        "def start(s, init_op):\n    s.run(init_op)\n",
        "a, init = anything()\ns.run(init)\n",
        "ops['x'] = tf.global_variables_initializer()\n",
        "register(tf.global_variables_initializer())\n",
        "init = tf.global_variables_initializer()\nregister(init)\n",
        "s.run(thing.init_op)\n",
    ],
)
def test_an_initialiser_that_is_not_followed_is_unresolved(source: str) -> None:
    source = HEAD + "import model\n" + source
    check_says(
        "distribute_broadcast",
        source,
        "unresolved",
        "rank 0",
        path="t.py",
        others={"model.py": MODEL},
        distributed=True,
    )


@pytest.mark.parametrize(
    ("init", "run"),
    [
        ("sess.run(tf.initialize_all_variables())", "sess.run(bcast_op)"),
        ("sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])", "sess.run(bcast_op)"),
        ("_ = sess.run(fetches=init)", "sess.run(bcast_op)"),
        ("init.run()", "bcast_op.run()"),
        ("tf.global_variables_initializer().run(session=sess)", "bcast_op.run(session=sess)"),
    ],
)
def test_a_broadcast_follows_the_initialiser(init: str, run: str) -> None:
    head = HEAD + "init = tf.group(tf.global_variables_initializer(), tf.tables_initializer())\nopt.minimize(l)\n"
    text = migrate_text(head + f"with tf.Session() as sess:\n    {init}  # start\n    go()\n", "V4", distributed=True)
    op = "tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])"
    assert f"    {init}  # start\n    bcast_op = {op}\n    {run}\n    go()\n" in text
