"""Horovod: what becomes of each of its functions, and what is left alone."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, migrated

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
RULES = (
    *("horovod_devices", "horovod_ranks", "horovod_lifecycle", "horovod_optimizer", "horovod_collectives"),
    *("horovod_broadcast", "horovod_compression", "horovod_import", "horovod_leftovers"),
)


def after(source: str, rule: str = "", **options: object) -> str:
    return migrated(source, rule, **options).after.decode()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "source",
    [
        "import horovod.torch as hvd\nhvd.init()\nopt = hvd.DistributedOptimizer(opt, op=hvd.Sum)\nx = hvd.rank()\n",
        "import mine as hvd\nhvd.init()\nhvd.allreduce(x)\nh = hvd.BroadcastGlobalVariablesHook(0)\n",
        "class hvd:\n    rank = staticmethod(int)\nx = hvd.rank()\n",
        "def f(hvd):\n    hvd.init()\n    return hvd.size()\n",
        "import horovod.mxnet as hvd\nprint(hvd.size())\n",
    ],
)
def test_other_things_called_hvd_are_left_alone(rule: str, source: str) -> None:
    check_noop(rule, source, distributed=True)


# ---- ranks


def test_places_within_f_strings_are_left_to_a_person_and_keep_the_import() -> None:
    source = HEAD + 'def f():\n    print(f"rank {hvd.rank()}")\n'
    result = migrated(source, distributed=True)
    if 'get_rank_id()}"' not in result.after.decode():
        assert result.after.decode() == source
        assert any(one.status == "manual" and "import stays" in one.message for one in result.findings)


def test_other_spellings_of_the_import() -> None:
    for head, call in (
        ("from horovod.tensorflow import rank as r\n", "r()"),
        ("from horovod import tensorflow as h\n", "h.rank()"),
        ("import horovod.tensorflow\n", "horovod.tensorflow.rank()"),
        ("import horovod.keras as hvd\n", "hvd.rank()"),
    ):
        text = after(head + f"import tensorflow as tf\ndef f():\n    return {call}\n", distributed=True)
        assert "    return get_rank_id()\n" in text
        assert "horovod" not in text, text


# ---- start, end, devices


def test_findings_speak_of_the_original_lines_behind_what_is_gone() -> None:
    again = "import horovod.tensorflow as hvd\n"
    source = again + "hvd.init(  # why\n)\n" + again + "import tensorflow as tf\n"
    result = migrated(source, distributed=True)
    assert result.after.decode() == "# why\nimport tensorflow as tf\n"
    assert [finding.line for finding in result.findings if "import is gone" in finding.message] == [1, 4]
    assert result.lines == (2, 5, 6)


def test_communication_is_started_for_the_ranks_that_are_asked_for() -> None:
    source = HEAD + "def main(_):\n  hvd.init()\n  train(hvd.rank())\nif __name__ == '__main__':\n  tf.app.run()\n"
    text = after(source, distributed=True)
    assert "init_sess, npu_init = init_npu()" in text
    assert text.index("init_sess.run(npu_init)") < text.index("train(get_rank_id())")
    assert "hvd" not in text


# ---- the optimizer


def test_it_is_not_wrapped_a_second_time() -> None:
    source = (
        HEAD + "opt = tf.train.AdamOptimizer(0.1)\nopt = hvd.DistributedOptimizer(opt)\ntrain = opt.minimize(loss)\n"
    )
    assert after(source, distributed=True).count("NPUDistributedOptimizer(") == 1


def test_of_a_loss_scale_optimizer_the_inner_one_is_wrapped() -> None:
    source = HEAD + (
        "manager = tf.train.experimental.FixedLossScale(8)\n"
        "opt = tf.train.AdamOptimizer(0.1)\n"
        "opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, manager)\n"
        "opt = hvd.DistributedOptimizer(opt)\n"
        "train = opt.minimize(loss)\n"
    )
    text = after(source, distributed=True)
    assert "opt = tf.train.AdamOptimizer(0.1)\nopt = NPUDistributedOptimizer(opt)\n" in text
    assert text.count("NPUDistributedOptimizer(") == 1
    assert "NPULossScaleOptimizer(opt, manager, is_distributed=True)\ntrain" in text


def test_a_loss_scale_around_it_changes_nothing() -> None:
    source = HEAD + (
        "def f():\n"
        "    opt = tf.train.AdamOptimizer(0.1)\n"
        "    if many:\n"
        "        opt = hvd.DistributedOptimizer(opt)\n"
        "    opt = tf.train.experimental.MixedPrecisionLossScaleOptimizer(opt, manager)\n"
        "    return opt\n"
    )
    text = after(source, distributed=True)
    assert "        opt = NPUDistributedOptimizer(opt)\n    opt = NPULossScaleOptimizer(opt, manager, is_dist" in text
    assert text.count("NPUDistributedOptimizer(") == 1


def test_nested_in_one_expression_too() -> None:
    source = HEAD + (
        "manager = tf.train.experimental.FixedLossScale(8)\n"
        "inner = tf.train.AdamOptimizer(0.1)\n"
        "opt = hvd.DistributedOptimizer(tf.contrib.mixed_precision.LossScaleOptimizer(inner, manager))\n"
        "train = opt.minimize(loss)\n"
    )
    text = after(source, distributed=True)
    assert "inner = NPUDistributedOptimizer(inner)\n" in text
    assert "opt = NPULossScaleOptimizer(inner, manager, is_distributed=True)\n" in text


def test_a_compression_that_nobody_reads_goes_and_one_that_is_read_stays() -> None:
    choice = "c = hvd.Compression.fp16 if fp16 else hvd.Compression.none\n"
    source = HEAD + choice + "opt = hvd.DistributedOptimizer(opt, compression=c)\n"
    assert after(source, distributed=True) == (
        "import tensorflow as tf\n"
        "from npu_bridge.estimator.npu.npu_optimizer import NPUDistributedOptimizer\n"
        "opt = NPUDistributedOptimizer(opt)\n"
    )
    result = migrated(HEAD + choice + "print(c)\n", distributed=True)
    assert result.after.decode() == HEAD + choice + "print(c)\n"
    assert any("Compression" in one.message and one.status == "manual" for one in result.findings)


# ---- broadcasts


# ---- collectives


# ---- what is left, and the import


@pytest.mark.parametrize(
    "use",
    ["hvd.nccl_built()", "hvd.broadcast_object(x, 0)", "hvd.elastic.run", "hvd.alltoall(x)", "hvd.Compression.fp16"],
)
def test_what_has_no_like_is_named_and_keeps_the_import(use: str) -> None:
    result = migrated(HEAD + f"y = ({use}, x)\nprint(y)\n", distributed=True)
    assert "import horovod.tensorflow as hvd\n" in result.after.decode()
    said = [one.message for one in result.findings if one.status == "manual"]
    assert any(use.partition("(")[0] in message for message in said), said
    assert any("import stays" in message for message in said)


def test_a_bare_use_keeps_the_import() -> None:
    source = HEAD + "if hvd is not None:\n    run(hvd)\n"
    result = migrated(source, distributed=True)
    assert result.after.decode() == source
    assert any("itself is used" in one.message for one in result.findings)


def test_horovod_that_comes_as_an_argument_is_followed() -> None:
    others = {"main.py": HEAD + "import script\nhvd.init()\nscript.train(loss, hvd=hvd)\n"}
    source = (
        "import tensorflow as tf\ndef train(loss, hvd=None):\n    opt = tf.train.AdamOptimizer(0.1)\n"
        "    if hvd is not None:\n        opt = hvd.DistributedOptimizer(opt)\n    return opt.compute_gradients(loss)\n"
    )
    result = migrated(source, others=others, distributed=True)
    assert "    if hvd is not None:\n        opt = NPUDistributedOptimizer(opt)\n" in result.after.decode()
    assert {one.status for one in result.findings} == {"changed"}
    main = migrated(others["main.py"], path="main.py", others={"script.py": source}, distributed=True)
    assert main.after.decode().endswith("import script\nscript.train(loss, hvd=hvd)\n")
    assert "hvd = True" in main.after.decode()
    assert "horovod" not in main.after.decode()


PASSED = {
    "a class": (
        "from script import Model\nhvd.init()\nModel(hvd).build()\n",
        "class Model:\n    def __init__(self, comm):\n        self.comm = comm\n    def build(self):\n"
        "        return self.comm.DistributedOptimizer(opt).minimize(l), self.comm.rank()\n",
    ),
    "a method": (
        "import script\nhvd.init()\nmodel = script.Model()\nmodel.build(h=hvd)\n",
        "class Model:\n    def build(self, x=1, h=None):\n        return self.inner(h)\n    def inner(self, deep):\n"
        "        return deep.DistributedOptimizer(opt).minimize(l), deep.rank()\n",
    ),
    "a choice": (
        "import script\nhvd.init()\nscript.build(hvd if multi else None)\n",
        "def build(hvd):\n    def inner():\n        return hvd.DistributedOptimizer(opt).minimize(l), hvd.rank()\n"
        "    return inner()\n",
    ),
    "a module's variable": (
        "hvd.init()\nimport script\n",
        "from main import hvd as h\nh.DistributedOptimizer(opt).minimize(l)\nprint(h.rank())\n",
    ),
    "a result": (
        "def get():\n    hvd.init()\n    return hvd\nimport script\n",
        "import main\nh = main.get()\nh.DistributedOptimizer(opt).minimize(l)\nprint(h.rank(), main.get().size())\n",
    ),
    "another object's attribute": (
        "import script\nhvd.init()\nargs.hvd = hvd\nscript.build(args)\n",
        "def build(args):\n    return args.hvd.DistributedOptimizer(opt).minimize(l), args.hvd.rank()\n",
    ),
}


@pytest.mark.parametrize("folder", ["", "src/"])
@pytest.mark.parametrize("way", PASSED)
def test_horovod_is_followed_through(way: str, folder: str) -> None:
    main, script = HEAD + PASSED[way][0], "import tensorflow as tf\n" + PASSED[way][1]
    files = {f"{folder}main.py": main, f"{folder}script.py": script}
    texts = {}
    for path, source in files.items():
        result = migrated(source, path=path, others=files, distributed=True)
        assert {one.status for one in result.findings} == {"changed"}, result.findings
        texts[path] = result.after.decode()
    both = "".join(texts.values())
    assert "NPUDistributedOptimizer(opt)" in both
    assert "horovod" not in both
    assert ".init()" not in both
    assert "hvd = True" in both


ESCAPES = {
    "an unknown function": "somewhere.register(hvd)\n",
    "a list": "backends = [hvd]\n",
    "a dictionary": "backends = {'hvd': hvd}\n",
    "another thing at times": "script.build(hvd)\nscript.build(fake)\n",
    "getattr": "size = getattr(hvd, name)()\n",
    "an attribute that is something else elsewhere": "args.backend = hvd\n\n\ndef f(x):\n    x.backend = 'gloo'\n",
}


@pytest.mark.parametrize("way", ESCAPES)
def test_a_program_in_which_horovod_is_not_followed_keeps_all_of_it(way: str) -> None:
    main = HEAD + "import script\nhvd.init()\nprint(hvd.rank())\n" + ESCAPES[way]
    script = "import tensorflow as tf\ndef build(h):\n    return h\n"
    inner = "import horovod.tensorflow as hvd\nimport tensorflow as tf\ndef f(o, ds):\n"
    inner += "    return hvd.DistributedOptimizer(o).minimize(1), ds.shard(hvd.size(), hvd.rank())\n"
    files = {"main.py": main + "import inner\n", "script.py": script, "inner.py": inner}
    for path, source in files.items():
        result = migrated(source, path=path, others=files, distributed=True)
        assert result.after.decode() == source
        if path != "script.py":
            assert any(one.status == "unresolved" and "main.py:6" in one.message for one in result.findings)
    other = HEAD + "hvd.init()\nprint(hvd.rank())\n"
    assert migrated(other, path="other.py", others=files, distributed=True).changed


def test_a_start_stays_as_long_as_something_needs_it() -> None:
    source = HEAD + "hvd.init()\nx = hvd.allgather_object(1)\n"
    result = migrated(source, distributed=True)
    assert "hvd.init()" in result.after.decode()
    assert any("hvd.init() stays" in one.message for one in result.findings if one.status == "manual")


def test_parts_of_horovod_may_come_from_its_inner_modules() -> None:
    source = (
        "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
        "from horovod.tensorflow.compression import Compression\n"
        "from horovod.tensorflow.mpi_ops import allreduce, size\n"
        "import horovod.tensorflow.compression as comp\ndef f(o):\n"
        "    a = hvd.DistributedOptimizer(o, compression=Compression.fp16)\n"
        "    b = hvd.DistributedOptimizer(o, compression=comp.NoneCompressor)\n"
        "    return allreduce(a, average=False), size()\n"
    )
    text = migrated(source, distributed=True).after.decode()
    assert "horovod" not in text
    assert 'return hccl_ops.allreduce(a, "sum"), get_rank_size()' in text


def test_a_module_that_others_import_asks_the_environment_and_starts_nothing() -> None:
    others = {"train.py": "import tensorflow as tf\nfrom script import RANK\ndef main():\n    print(RANK)\nmain()\n"}
    result = migrated(HEAD + "hvd.init()\nRANK = hvd.rank()\n", others=others, distributed=True)
    assert result.after.decode().endswith('RANK = int(os.getenv("RANK_ID", "0"))\n')


GUARDED = "import tensorflow as tf\ntry:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\n"


@pytest.mark.parametrize(
    "fallback", ["hvd = Alone()", "import fake as hvd"], ids=["an object of its own", "another module"]
)
def test_a_stand_in_of_the_script_is_not_taken_for_horovod(fallback: str) -> None:
    source = GUARDED.replace("hvd = None", fallback) + "if hvd is not None:\n    hvd.init()\n"
    assert migrated(source, distributed=True).after.decode() == source


def test_looking_for_the_package_is_left_to_a_person() -> None:
    source = HEAD + "import importlib.util\nHAS = importlib.util.find_spec('horovod') is not None\nhvd.init()\n"
    said = [one.message for one in migrated(source, distributed=True).findings if one.status == "manual"]
    assert any("find_spec('horovod') finds no Horovod" in message for message in said), said


def test_a_whole_script_ends_without_horovod() -> None:
    source = HEAD + (
        "def main(_):\n"
        "    hvd.init()\n"
        "    config = tf.ConfigProto()\n"
        "    config.gpu_options.visible_device_list = str(hvd.local_rank())\n"
        "    opt = tf.train.AdamOptimizer(0.001 * hvd.size())\n"
        "    opt = hvd.DistributedOptimizer(opt)\n"
        "    train_op = opt.minimize(loss)\n"
        "    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=20000 // hvd.size())]\n"
        "    folder = './out' if hvd.rank() == 0 else None\n"
        "    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as sess:\n"
        "        while not sess.should_stop():\n"
        "            sess.run(train_op)\n"
        "if __name__ == '__main__':\n"
        "    tf.app.run()\n"
    )
    text = after(source, distributed=True)
    assert "hvd" not in text
    assert "horovod" not in text
    for part in (
        "opt = tf.train.AdamOptimizer(0.001 * get_rank_size())\n    opt = NPUDistributedOptimizer(opt)\n",
        "hooks = [NPUBroadcastGlobalVariablesHook(0, get_rank_id()), tf.train.StopAtStepHook(",
        "folder = './out' if get_rank_id() == 0 else None\n",
    ):
        assert part in text, text
    assert text.count("NPUBroadcastGlobalVariablesHook(") == 1


def test_an_attribute_of_the_same_name_in_another_class_is_not_taken_for_horovod() -> None:
    source = HEAD + (
        "hvd.init()\nclass A:\n    def __init__(self):\n        self.comm = hvd\n    def f(self):\n"
        "        return self.comm.rank()\nclass B:\n    def __init__(self, comm):\n        self.comm = comm\n"
        "    def f(self):\n        return self.comm.rank()\n"
    )
    text = migrated(source, distributed=True).after.decode()
    assert text.count("return get_rank_id()") == 1
    assert text.endswith("return self.comm.rank()\n")
    outside = source + "print(A().comm.size(), a.comm.rank())\n"
    left = migrated(outside, distributed=True)
    assert left.after.decode() == outside, "which of the two `a` holds is not seen"
    assert any(one.status == "unresolved" for one in left.findings)
