"""Distribution: strategies, optimizers, gradients, first values, metrics, variables of the environment."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HEAD = "import tensorflow as tf\n"
NPU = "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"


def after(source: str, rule: str = "", **options: object) -> str:
    return migrated(dedent(source), rule, **options).after.decode()


def wrapped(source: str, **options: object) -> str:
    return after(HEAD + dedent(source), "distribute_optimizer", distributed=True, **options)


# ---- V1: strategies


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize(
    "source",
    [
        "from mine import MirroredStrategy\ns = MirroredStrategy()\nrun(s)\n",
        "import tensorflow as tf\nprint(tf.distribute.get_strategy())\n",
        "class tf:\n    distribute = None\ns = tf.distribute.MirroredStrategy()\n",
    ],
)
def test_other_strategies_are_left_alone(source: str, distributed: bool) -> None:
    check_noop("distribute_strategy", source, distributed=distributed)


@pytest.mark.parametrize(
    "made",
    [
        "tf.distribute.MirroredStrategy(devices=['/gpu:0'])",
        "tf.distribute.experimental.MultiWorkerMirroredStrategy()",
        "tf.distribute.experimental.CentralStorageStrategy()",
        "tf.contrib.distribute.MirroredStrategy(num_gpus=2)",
        "tf.contrib.distribute.CollectiveAllReduceStrategy(\n    num_gpus_per_worker=1)",
    ],
)
def test_a_strategy_that_is_passed_on_becomes_none(made: str) -> None:
    uses = "if s is not None:\n    run(s, strategy=s)\nif s: pass\n"
    check_rewrite("distribute_strategy", HEAD + f"s = {made}  # why\n{uses}", HEAD + f"s = None  # why\n{uses}")


def test_in_a_distributed_run_it_becomes_the_accelerators() -> None:
    text = after(HEAD + "s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    run()\n", distributed=True)
    assert "s = npu_strategy.NPUStrategy()\nwith s.scope():" in text
    assert "from npu_bridge.estimator.npu import npu_strategy\n" in text


@pytest.mark.parametrize(
    "use",
    [
        "s = MADE\nwith s.scope():\n    run()\n",
        "s = MADE\nn = s.num_replicas_in_sync\n",
        "s = MADE\nrun(s)\nprint(s.extended)\n",
        "s = MADE\ndef f(strategy):\n    return strategy.num_replicas_in_sync\nf(s)\n",
        "with MADE.scope():\n    run()\n",
        "def f():\n    return MADE\n",
    ],
)
def test_a_strategy_of_which_more_is_asked_is_left_to_a_person(use: str) -> None:
    source = HEAD + use.replace("MADE", "tf.distribute.MirroredStrategy()")
    check_says("distribute_strategy", source, "manual", "strategy")


def test_what_the_run_configuration_left_unused_is_not_made() -> None:
    source = HEAD + "s = tf.distribute.MirroredStrategy()\nc = tf.estimator.RunConfig(train_distribute=s)\n"
    for distributed in (False, True):
        text = after(source, distributed=distributed)
        assert "s = None\n" in text
        assert "c = NPURunConfig()" in text


@pytest.mark.parametrize("distributed", [False, True])
def test_a_helper_that_chooses_is_only_reported(distributed: bool) -> None:
    source = HEAD + (
        "def get_distribution_strategy(kind):\n"
        "    if kind == 'one':\n"
        "        return tf.distribute.OneDeviceStrategy('device:GPU:0')\n"
        "    return tf.distribute.MirroredStrategy()\n"
        "s = get_distribution_strategy('one')\n"
    )
    result = check_says("distribute_strategy", source, "manual", "helper", distributed=distributed)
    assert len(result.findings) == 3


@pytest.mark.parametrize(
    "made",
    [
        "tf.distribute.experimental.ParameterServerStrategy()",
        "tf.distribute.experimental.TPUStrategy(r)",
        "tf.train.SyncReplicasOptimizer(opt, 4)",
        "tf.train.Server(cluster)",
    ],
)
def test_servers_and_tpus_are_named(made: str) -> None:
    check_says("distribute_servers", HEAD + f"s = {made}\n", "manual", "")


# ---- V2: optimizers


@pytest.mark.parametrize(
    "source",
    [
        "opt = tf.train.AdamOptimizer(1)\n",
        "opt = tf.train.AdamOptimizer(1)\nprint(opt, isinstance(opt, tf.train.Optimizer), opt.get_name())\n",
        "opt = tf.keras.optimizers.Adam(1)\nopt.minimize(loss)\n",
        "model.compile(optimizer=tf.train.AdamOptimizer(1), loss='mse')\n",
        "tf.contrib.opt.ScipyOptimizerInterface(loss).minimize(sess)\n",
        "class Optimizer:\n    def minimize(self, x): pass\nOptimizer().minimize(1)\nscheduler.minimize(2)\n",
        NPU + "opt = NPUDistributedOptimizer(tf.train.AdamOptimizer(1))\nopt.minimize(loss)\n",
        NPU + "opt = tf.train.AdamOptimizer(1)\nnpu = NPUDistributedOptimizer(opt)\nnpu.minimize(loss)\n",
        "from npu_bridge.npu_init import *\nopt = npu_tf_optimizer(tf.train.AdamOptimizer(1))\nopt.minimize(loss)\n",
        "import horovod.tensorflow as hvd\nopt = hvd.DistributedOptimizer(tf.train.AdamOptimizer(1))\n"
        "opt.minimize(l)\n",
    ],
)
def test_what_does_not_train_and_what_is_wrapped_stay(source: str) -> None:
    if source.startswith("class Optimizer"):
        result = migrated(HEAD + source, "distribute_optimizer", distributed=True)
        assert not result.changed
    else:
        check_noop("distribute_optimizer", HEAD + source, distributed=True)


def test_nothing_is_wrapped_on_one_device() -> None:
    text = after(HEAD + "opt = tf.train.AdamOptimizer(1)\ntrain = opt.minimize(loss)\n")
    assert "NPUDistributedOptimizer" not in text


def test_it_is_wrapped_behind_its_construction() -> None:
    before = (
        "import tensorflow.compat.v1 as tf1\ndef f():\n\topt = tf1.train.MomentumOptimizer(\n"
        "\t\t0.1, 0.9)  # sgd\n\tgvs = opt.compute_gradients(l)\n"
    )
    later = before.replace("  # sgd\n", "  # sgd\n\topt = NPUDistributedOptimizer(opt)\n").replace(
        "tf1\n", "tf1\n" + NPU, 1
    )
    check_rewrite("distribute_optimizer", before, later, distributed=True)


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "t = tf.train.AdamOptimizer(1).minimize(l)\n",
            "t = NPUDistributedOptimizer(tf.train.AdamOptimizer(1)).minimize(l)\n",
        ),
        (
            "def f():\n    return tf.train.AdamOptimizer(1)\n",
            "def f():\n    return NPUDistributedOptimizer(tf.train.AdamOptimizer(1))\n",
        ),
        (
            "def f():\n    o = tf.train.AdamOptimizer(1)\n    return o, 2\n",
            "def f():\n    o = tf.train.AdamOptimizer(1)\n    o = NPUDistributedOptimizer(o)\n    return o, 2\n",
        ),
        (
            "o = tf.train.AdamOptimizer(1) if a else tf.contrib.opt.LARSOptimizer(1)\no.minimize(l)\n",
            "o = tf.train.AdamOptimizer(1) if a else tf.contrib.opt.LARSOptimizer(1)\n"
            "o = NPUDistributedOptimizer(o)\no.minimize(l)\n",
        ),
        (
            "class M:\n    def __init__(self):\n        self.o = tf.train.AdamOptimizer(1)\n"
            "    def step(self):\n        return self.o.minimize(l)\n",
            "class M:\n    def __init__(self):\n        self.o = tf.train.AdamOptimizer(1)\n"
            "        self.o = NPUDistributedOptimizer(self.o)\n    def step(self):\n"
            "        return self.o.minimize(l)\n",
        ),
        (
            "op = tf.contrib.layers.optimize_loss(l, s, optimizer=lambda r: tf.train.AdamOptimizer(r))\n",
            "op = tf.contrib.layers.optimize_loss(l, s, optimizer=lambda r: "
            "NPUDistributedOptimizer(tf.train.AdamOptimizer(r)))\n",
        ),
        (
            "o = tf.train.AdamOptimizer(1)\nop = tf.contrib.slim.learning.create_train_op(l, o)\n",
            "o = tf.train.AdamOptimizer(1)\no = NPUDistributedOptimizer(o)\n"
            "op = tf.contrib.slim.learning.create_train_op(l, o)\n",
        ),
        (
            "def step(opt):\n    return opt.minimize(l)\nstep(tf.train.AdamOptimizer(1))\n",
            "def step(opt):\n    return opt.minimize(l)\nstep(NPUDistributedOptimizer(tf.train.AdamOptimizer(1)))\n",
        ),
    ],
)
def test_every_way_to_train(before: str, later: str) -> None:
    assert wrapped(before) == HEAD + NPU + later


def test_one_line_behind_a_choice() -> None:
    before = (
        "def f():\n"
        "  if lars:\n"
        "    opt = tf.contrib.opt.LARSOptimizer(1)\n"
        "  elif adam:\n"
        "    opt = tf.train.AdamOptimizer(1)\n"
        "  else:\n"
        "    raise ValueError(adam)\n"
        "  return opt.minimize(l)\n"
    )
    later = before.replace("  return opt", "  opt = NPUDistributedOptimizer(opt)\n  return opt")
    assert wrapped(before) == HEAD + NPU + later


def test_a_choice_without_an_else_wraps_each_where_it_is_made() -> None:
    before = (
        "opt = tf.train.AdamOptimizer(1)\nif sgd:\n    opt = tf.train.GradientDescentOptimizer(1)\nopt.minimize(l)\n"
    )
    later = (
        "opt = tf.train.AdamOptimizer(1)\nopt = NPUDistributedOptimizer(opt)\nif sgd:\n"
        "    opt = tf.train.GradientDescentOptimizer(1)\n    opt = NPUDistributedOptimizer(opt)\nopt.minimize(l)\n"
    )
    assert wrapped(before) == HEAD + NPU + later


def test_a_use_within_a_branch_wraps_before_it() -> None:
    before = (
        "if a:\n    o = tf.train.AdamOptimizer(1)\n    t = o.minimize(l)\nelse:\n"
        "    o = tf.train.FtrlOptimizer(1)\n    t = o.minimize(l)\n"
    )
    text = wrapped(before)
    assert text.count("    o = NPUDistributedOptimizer(o)\n    t = o.minimize(l)\n") == 2


def test_of_an_optimizer_within_another_the_inner_one_is_wrapped() -> None:
    text = wrapped("o = tf.train.AdamOptimizer(1)\no = tf.contrib.opt.MovingAverageOptimizer(o)\no.minimize(l)\n")
    assert "o = tf.train.AdamOptimizer(1)\no = NPUDistributedOptimizer(o)\no = tf.contrib.opt.Moving" in text
    assert text.count("NPUDistributedOptimizer(") == 1


def test_a_class_of_the_project_that_derives_from_an_optimizer() -> None:
    others = {"optim.py": HEAD + "class Lamb(tf.train.Optimizer):\n    pass\n"}
    source = "import tensorflow as tf\nimport optim\no = optim.Lamb(1)\no.apply_gradients(g)\n"
    text = after(source, "distribute_optimizer", others=others, distributed=True)
    assert "o = optim.Lamb(1)\no = NPUDistributedOptimizer(o)\n" in text


def test_what_is_wrapped_by_a_caller_is_not_wrapped_twice() -> None:
    others = {
        "main.py": "import horovod.tensorflow as hvd\nfrom script import make\nopt = hvd.DistributedOptimizer(make())\n"
    }
    source = HEAD + "def make():\n    return tf.train.AdamOptimizer(1)\n"
    check_says("distribute_optimizer", source, "manual", "once", others=others, distributed=True)


@pytest.mark.parametrize("use", ["table = {'adam': %s}", "train(%s)", "a, b = %s, 1"])
def test_where_it_goes_must_be_seen(use: str) -> None:
    check_says(
        "distribute_optimizer", HEAD + use % "tf.train.AdamOptimizer(1)" + "\n", "manual", "once", distributed=True
    )


def test_a_class_that_only_calls_itself_an_optimizer_is_left_to_a_person() -> None:
    source = HEAD + "import other\no = other.MyOptimizer(1)\no.minimize(l)\n"
    check_says("distribute_optimizer", source, "manual", "not shown", distributed=True)


def test_wrapper_style_and_the_loss_scale() -> None:
    text = wrapped("o = tf.train.AdamOptimizer(1)\no.minimize(l)\n", style="wrapper")
    assert "o = npu_distributed_optimizer_wrapper(o)\n" in text
    source = (
        "from npu_bridge.npu_init import *\no = NPULossScaleOptimizer(tf.train.AdamOptimizer(1), m)\no.minimize(l)\n"
    )
    text = wrapped(source)
    assert (
        "o = NPULossScaleOptimizer(NPUDistributedOptimizer(tf.train.AdamOptimizer(1)), m, is_distributed=True)" in text
    )


# ---- V3: gradients


@pytest.mark.parametrize(
    "source",
    [
        "g = tf.gradients(y, x)[0]\nprint(g)\n",
        "g = tf.gradients(d, [x])[0]\nloss += tf.norm(g)\nopt.minimize(loss)\n",
        "g = tf.gradients(d, [x])[0]\nloss = l + tf.norm(g)\ngvs = opt.compute_gradients(loss)\n"
        "opt.apply_gradients(gvs)\n",
        "from npu_bridge.npu_init import *\ng = npu_allreduce(tf.gradients(l, v))\nopt.apply_gradients(zip(g, v))\n",
        "from npu_bridge.hccl import hccl_ops\ng = tf.gradients(l, v)\ng = [hccl_ops.allreduce(x, 'sum') for x in g]\n"
        "opt.apply_gradients(zip(g, v))\n",
        "def gradients(a, b): pass\ng = gradients(l, v)\nopt.apply_gradients(zip(g, v))\n",
    ],
)
def test_gradients_of_other_things_and_exchanged_ones_stay(source: str) -> None:
    check_noop("distribute_gradients", HEAD + source, distributed=True)


BERT = """\
import tensorflow as tf
def create_optimizer(loss, init_lr):
  optimizer = AdamWeightDecayOptimizer(learning_rate=init_lr)
  tvars = tf.trainable_variables()
  grads = tf.gradients(loss, tvars)
  (grads, _) = tf.clip_by_global_norm(grads, clip_norm=1.0)
  return optimizer.apply_gradients(zip(grads, tvars), global_step=step)
class AdamWeightDecayOptimizer(tf.train.Optimizer):
  pass
"""


def test_clipped_gradients_of_ones_own_optimizer() -> None:
    text = after(BERT, distributed=True)
    assert "  optimizer = NPUDistributedOptimizer(optimizer)\n" in text
    assert "  grads = [grad for grad, _ in optimizer.compute_gradients(loss, tvars)]\n  (grads, _) = tf.clip" in text


def test_further_arguments_go_along_and_others_make_it_a_reduction() -> None:
    head = HEAD + NPU + "v = tf.trainable_variables()\no = NPUDistributedOptimizer(x)\n"
    text = after(head + "g = tf.gradients(l, v, grad_ys=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True)
    assert "g = [grad for grad, _ in o.compute_gradients(l, v, grad_loss=s)]" in text
    text = after(
        head + "g = tf.gradients(l, v, stop_gradients=s)\no.apply_gradients(zip(g, v))\n", "V3", distributed=True
    )
    assert "g = npu_allreduce(tf.gradients(l, v, stop_gradients=s))" in text


def test_an_optimizer_that_is_made_later_makes_it_a_reduction() -> None:
    source = HEAD + "v = tf.trainable_variables()\ng = tf.gradients(l, v)\no = make()\no.apply_gradients(zip(g, v))\n"
    assert "g = npu_allreduce(tf.gradients(l, v))" in after(source, "V3", distributed=True)


def test_gradients_by_something_else_than_what_is_updated_are_left_to_a_person() -> None:
    source = HEAD + "g = tf.gradients(l, x)\no.apply_gradients(pairs(g))\n"
    check_says("distribute_gradients", source, "manual", "training loss", distributed=True)


# ---- V4: first values


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
    text = after(head + f"with tf.Session() as sess:\n    {init}  # start\n    go()\n", "V4", distributed=True)
    op = "tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()])"
    assert f"    {init}  # start\n    bcast_op = {op}\n    {run}\n    go()\n" in text


@pytest.mark.parametrize(
    "opened",
    [
        "s = tf.Session(graph=g)\n",
        "s = tf.Session('', g)\n",
        "with tf.Graph().as_default():\n    s = tf.Session()\n",
        "s = somewhere.opened()\n",
    ],
)
def test_a_session_with_a_graph_of_its_own_gets_the_operation_there(opened: str) -> None:
    source = HEAD + f"opt.minimize(l)\n{opened}s.run(tf.global_variables_initializer())\n"
    text = after(source, "distribute_broadcast", distributed=True)
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
def test_a_run_behind_which_nothing_can_be_written_is_left_to_a_person(run: str) -> None:
    source = HEAD + f"opt.minimize(l)\ninit = tf.global_variables_initializer()\n{run}"
    check_says("distribute_broadcast", source, "manual", "same values", distributed=True)


# ---- V4 over several files

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
    text = after(
        f"{HEAD}{imported}\n{before}",
        "distribute_broadcast",
        path=f"{folder}train.py",
        others={f"{folder}model.py": MODEL},
        distributed=True,
    )
    assert BROADCAST in text
    assert f"{later}.run(bcast_op)\n" in text


def test_a_class_may_keep_the_session_and_the_initialiser() -> None:
    source = (
        HEAD + "from model import Net\nclass Trainer:\n    def __init__(self):\n        self.net = Net()\n"
        "        self.sess = tf.Session()\n    def start(self):\n        self.sess.run(self.net.start_op)\n"
        "    def again(self):\n        self.sess.run(self.net.initialiser())\n"
    )
    text = after(source, "distribute_broadcast", path="train.py", others={"model.py": MODEL}, distributed=True)
    scope = f"        with self.sess.graph.as_default():\n            {BROADCAST}\n        self.sess.run(bcast_op)\n"
    assert text.count(scope) == 2


def test_a_file_without_tensorflow_may_bring_model_and_session_together() -> None:
    helper = "from tensorflow import Session, global_variables_initializer as first\ndef opened():\n"
    helper += "    sess = Session()\n    sess.run(first())\n    return sess\n"
    others = {
        "app/model.py": MODEL,
        "app/main.py": "from . import util\nfrom .model import build\nbuild(util.opened())\n",
    }
    text = after(helper, "distribute_broadcast", path="app/util.py", others=others, distributed=True)
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
    text = after(HEAD + f"def train():\n    opt.minimize(l)\n    return tf.train.{before}\n", "V4", distributed=True)
    assert later.replace("HOOK", "NPUBroadcastGlobalVariablesHook(0, get_rank_id())") in text


def test_a_canned_estimator_gets_the_hook_and_an_npu_estimator_does_not() -> None:
    head = HEAD + "def f():\n    e = tf.estimator.DNNClassifier([8], columns)\n"
    text = after(head + "    e.train(fn, steps=2)\n", "distribute_broadcast", distributed=True)
    assert "e.train(fn, steps=2, hooks=[NPUBroadcastGlobalVariablesHook(0, get_rank_id())])" in text
    check_noop("distribute_broadcast", HEAD + "e = tf.estimator.Estimator(f)\ne.train(fn)\n", distributed=True)


@pytest.mark.parametrize("call", ["tf.train.Supervisor(logdir=d)", "tf.contrib.slim.learning.train(op, d)"])
def test_sessions_that_somebody_else_opens_are_left_to_a_person(call: str) -> None:
    check_says(
        "distribute_broadcast", HEAD + f"opt.minimize(l)\ns = {call}\n", "manual", "same values", distributed=True
    )


# ---- V6: metrics


def test_metrics_are_averaged_only_when_asked_for() -> None:
    source = (
        HEAD
        + "def f():\n    a = tf.metrics.mean(x)\n    return tf.estimator.EstimatorSpec(m, eval_metric_ops={'a': a})\n"
    )
    assert "allreduce" not in after(source, distributed=True)
    text = after(source, distributed=True, metrics_allreduce=True)
    assert '{\'a\': (hccl_ops.allreduce(a[0], "sum") / int(os.getenv("RANK_SIZE", "1")), a[1])}' in text


def test_metrics_in_another_form_go_through_a_comprehension() -> None:
    source = HEAD + "s = tf.estimator.EstimatorSpec(m, eval_metric_ops=metric_fn(*t))\n"
    text = after(source, "distribute_metrics", metrics_allreduce=True)
    assert "for key, (value, update) in metric_fn(*t).items()}" in text
    source = HEAD + "def f(metrics):\n    return tf.estimator.EstimatorSpec(m, eval_metric_ops=metrics)\n"
    check_says("distribute_metrics", source, "manual", "average metrics", metrics_allreduce=True)
    check_noop("distribute_metrics", HEAD + "s = tf.estimator.EstimatorSpec(m, l)\n", metrics_allreduce=True)


# ---- V7: the environment


@pytest.mark.parametrize(
    "source",
    [
        "n = int(os.getenv('RANK_SIZE'))\n",  # not migrated: somebody else's variable
        "from npu_bridge.estimator import npu_ops\nn = int(os.getenv('RANK_SIZE', '8'))\n",
        "from npu_bridge.estimator import npu_ops\nn = os.getenv('RANK_SIZE')\nm = int(os.getenv('OTHER'))\n",
    ],
)
def test_other_variables_and_those_with_a_default_stay(source: str) -> None:
    check_noop("distribute_environment", "import os\n" + source)


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("int(os.environ.get('RANK_ID'))", "int(os.environ.get('RANK_ID', \"0\"))"),
        ("int(os.environ['RANK_SIZE'])", "int(os.environ.get('RANK_SIZE', \"1\"))"),
        ("int(os.environ.get('RANK_SIZE', '').strip())", "int(os.environ.get('RANK_SIZE', \"1\").strip())"),
        ("int(os.getenv('DEVICE_ID'))", "int(os.getenv('DEVICE_ID', \"0\"))"),
    ],
)
def test_a_default_is_written(before: str, later: str) -> None:
    head = "import os\nfrom hccl.manage.api import get_rank_id\nx = "
    check_rewrite("distribute_environment", head + before + "\n", head + later + "\n")


def test_a_variable_that_is_made_a_number_later() -> None:
    head = "import os\nfrom npu_bridge.npu_init import *\n"
    before = head + "size = os.environ.get('RANK_SIZE', '').strip()\nif int(size) > 1:\n    print(int(size))\n"
    check_rewrite("distribute_environment", before, before.replace("''", '"1"'))


# ---- D5 and D6: shards


@pytest.mark.parametrize(
    "source",
    [
        "loader.shard(ctx.number, ctx.index)\n",
        "ds = tf.data.Dataset.range(9).shard(2, 0)\n",
        "from hccl.manage.api import get_rank_id, get_rank_size\n"
        "ds = tf.data.Dataset.range(9).shard(get_rank_size(), get_rank_id())\n",
        "import os\nn = int(os.getenv('RANK_SIZE', '1'))\n"
        "ds = tf.data.Dataset.range(9).shard(n, int(os.getenv('RANK_ID', '0')))\n",
    ],
)
def test_other_shards_stay(source: str) -> None:
    check_noop("dataset_shard", HEAD + source, distributed=True)


def test_a_shard_by_an_input_context_goes_by_rank() -> None:
    before = HEAD + (
        "def input_fn(input_context=None):\n"
        "  dataset = tf.data.Dataset.from_tensor_slices(files)\n"
        "  if input_context:\n"
        "    dataset = dataset.shard(input_context.num_input_pipelines,  # how many\n"
        "                            input_context.input_pipeline_id)\n"
        "  return dataset\n"
    )
    result = migrated(before, "dataset_shard", distributed=True)
    assert (
        "dataset.shard(get_rank_size(),  # how many\n                            get_rank_id())"
        in result.after.decode()
    )
    assert "  if get_rank_size() > 1:\n" in result.after.decode(), "without a strategy nobody passes a context"
    check_says("dataset_shard", before, "advice", "--distributed")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("if ctx is not None:\n        ds = SHARD\n    return ds\n", "if SIZE > 1:\n        ds = NEW\n    return ds\n"),
        (
            "if ctx is None:\n        return ds\n    return SHARD\n",
            "if SIZE <= 1:\n        return ds\n    return NEW\n",
        ),
        ("return SHARD if ctx else ds\n", "return NEW if SIZE > 1 else ds\n"),
        (
            "if not ctx:\n        pass\n    else:\n        ds = SHARD\n    return ds\n",
            "if SIZE <= 1:\n        pass\n    else:\n        ds = NEW\n    return ds\n",
        ),
        (
            "if ctx:\n        print(ctx.input_pipeline_id)\n        ds = SHARD\n    return ds\n",
            "if SIZE > 1:\n        print(get_rank_id())\n        ds = NEW\n    return ds\n",
        ),
    ],
)
@pytest.mark.parametrize("rank", ["hccl", "env"])
def test_a_shard_is_reached_without_a_strategy(before: str, later: str, rank: str) -> None:
    head = HEAD + "def input_fn(ctx=None):\n    ds = tf.data.TFRecordDataset(f)\n    "
    source = head + before.replace("SHARD", "ds.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)")
    text = after(source, "dataset_shard", distributed=True, rank=rank)
    wanted = later.replace("NEW", "ds.shard(SIZE, get_rank_id())").replace("SIZE", "get_rank_size()")
    if rank == "env":
        wanted = wanted.replace("get_rank_size()", 'int(os.getenv("RANK_SIZE", "1"))')
        wanted = wanted.replace("get_rank_id()", 'int(os.getenv("RANK_ID", "0"))')
    assert text.endswith(wanted), text


@pytest.mark.parametrize(
    "condition",
    [
        "if ctx and more:\n        ds = SHARD\n",
        "if ctx:\n        n = ctx.get_per_replica_batch_size(8)\n        ds = SHARD\n",
    ],
)
def test_a_condition_that_asks_for_more_is_left_to_a_person(condition: str) -> None:
    source = HEAD + "def input_fn(ctx=None):\n    ds = tf.data.TFRecordDataset(f)\n    " + condition + "    return ds\n"
    source = source.replace("SHARD", "ds.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)")
    result = migrated(source, "dataset_shard", distributed=True)
    assert any(one.status == "manual" and "see that it is reached" in one.message for one in result.findings)


@pytest.mark.parametrize(
    "given",
    [
        "num_shards=strategy.num_replicas_in_sync, index=config.global_id_in_cluster",
        "len(cluster['worker']), cluster_task",
        "config.num_worker_replicas, config.task_id",
    ],
)
def test_shards_by_a_cluster_go_by_rank(given: str) -> None:
    head = "import json, os\ncluster = json.loads(os.environ['TF_CONFIG'])\ncluster_task = cluster['task']['index']\n"
    text = after(
        HEAD + head + f"def f():\n    return tf.data.Dataset.range(9).shard({given})\n", "D5", distributed=True
    )
    assert "get_rank_size(), " in text
    assert "get_rank_id())" in text


def test_ranks_from_the_environment_when_asked_for() -> None:
    source = HEAD + "def f(c):\n    return tf.data.Dataset.range(9).shard(c.num_input_pipelines, c.input_pipeline_id)\n"
    text = after(source, "dataset_shard", distributed=True, rank="env")
    assert '.shard(int(os.getenv("RANK_SIZE", "1")), int(os.getenv("RANK_ID", "0")))' in text


def test_a_shard_of_unknown_origin_is_left_to_a_person() -> None:
    source = HEAD + "def f(n, i):\n    return tf.data.Dataset.range(9).shard(n, i)\n"
    check_says("dataset_shard", source, "manual", "rank", distributed=True)
    check_noop("dataset_shard", source)


def test_data_that_is_never_sharded_is_mentioned_once() -> None:
    source = (
        HEAD + "def input_fn():\n    ds = tf.data.Dataset.list_files(p)\n"
        "    return ds.interleave(lambda f: tf.data.TFRecordDataset(f))\n"
    )
    result = check_says("dataset_unsharded", source, "manual", "same examples", distributed=True)
    assert len(result.findings) == 1
    check_noop("dataset_unsharded", source.replace("input_fn", "eval_input_fn"), distributed=True)
    check_noop("dataset_unsharded", source.replace("return ds", "return ds.shard(n, i)"), distributed=True)


OPTIMIZER = "distribute_optimizer"


@pytest.mark.parametrize(
    "source",
    [
        "opt = {'adam': tf.train.AdamOptimizer}[name](0.1)\nopt.minimize(loss)\n",
        "opt = getattr(tf.train, name)(0.1)\nopt.apply_gradients(g)\n",
        "def f(kind=tf.train.AdamOptimizer):\n    kind(0.1).minimize(loss)\n",
        "def f(opt):\n    opt.minimize(loss)\n",
        "W = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.AdamOptimizer)\nW(0.1).minimize(loss)\n",
        "class A:\n    def f(self):\n        self.opt.minimize(loss)\n",
        "from elsewhere import make\nopt = make(0.1)\nopt.minimize(loss)\n",
    ],
)
def test_an_optimizer_that_is_made_out_of_sight_is_found_where_it_trains(source: str) -> None:
    result = check_says(OPTIMIZER, HEAD + source, "manual", "not seen", distributed=True)
    assert {one.risk for one in result.findings} == {"high"}


@pytest.mark.parametrize("optimizer", ["'Adam'", "tf.train.AdamOptimizer"])
def test_an_optimizer_that_optimize_loss_makes_is_left_to_a_person(optimizer: str) -> None:
    source = f"tf.contrib.layers.optimize_loss(loss, None, 0.1, optimizer={optimizer})\n"
    check_says(OPTIMIZER, HEAD + source, "manual", "itself", distributed=True)


@pytest.mark.parametrize(
    "source",
    [
        "from scipy import optimize\noptimize.minimize(f, x)\n",
        "def f(opt):\n    g = tf.gradients(loss, v)\n    opt.apply_gradients(zip(g, v))\n",
        "class A(tf.train.Optimizer):\n    def apply_gradients(self, g):\n        return self.o.apply_gradients(g)\n",
        "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
        "opt = NPUDistributedOptimizer(getattr(tf.train, name)(0.1))\nopt.minimize(loss)\n",
    ],
)
def test_what_is_no_optimizer_or_is_wrapped_is_not_mentioned(source: str) -> None:
    check_noop(OPTIMIZER, HEAD + source, distributed=True)


@pytest.mark.parametrize(
    "source",
    [
        "if a:\n    opt = tf.train.AdamOptimizer(1)\nelse:\n    opt = tf.train.AdagradOptimizer(1)\nopt.minimize(x)\n",
        "def f(opt):\n    opt.minimize(loss)\nf(tf.train.AdamOptimizer(1))\n",
        "class A:\n    def f(self):\n        self.o = tf.train.AdamOptimizer(1)\n        self.o.minimize(loss)\n",
        "def make():\n    return tf.train.AdamOptimizer(1)\nmake().minimize(loss)\n",
    ],
)
def test_what_is_wrapped_is_not_left_to_a_person(source: str) -> None:
    result = migrated(HEAD + source, OPTIMIZER, distributed=True)
    assert "NPUDistributedOptimizer(" in result.after.decode()
    assert not [one for one in result.findings if one.status == "manual"]


OTHERWISE_NAMED = "import tensorflow as tf\ndef build(loss):\n    return tf.train.AdamOptimizer(1).minimize(loss)\n"


@pytest.mark.parametrize("name", ["test", "run_test", "evaluate_once", "infer_demo"])
@pytest.mark.parametrize(
    "fetch", ["train_op", "[loss, self.train_step]", "model.optimizer", "fetches={'t': net.train}"]
)
def test_a_function_that_trains_broadcasts_whatever_it_is_called(name: str, fetch: str) -> None:
    text = (
        f"{OTHERWISE_NAMED}def {name}(self, model, net, loss, train_op):\n    with tf.Session() as s:\n"
        f"        s.run(tf.global_variables_initializer())\n        s.run({fetch})\n"
    )
    assert "s.run(bcast_op)" in migrated(text, "distribute_broadcast", distributed=True).after.decode()


@pytest.mark.parametrize("fetch", ["accuracy", "[loss, train_accuracy]", "self.trainable", "self.train_writer.summary"])
def test_a_function_that_evaluates_does_not_broadcast(fetch: str) -> None:
    text = (
        f"{OTHERWISE_NAMED}def evaluate(self, loss, accuracy, train_accuracy):\n    with tf.Session() as s:\n"
        f"        s.run(tf.global_variables_initializer())\n        s.run({fetch})\n"
    )
    assert "bcast_op" not in migrated(text, "distribute_broadcast", distributed=True).after.decode()
