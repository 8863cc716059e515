"""Horovod: what becomes of each of its functions, and what is left alone."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says, migrated

HEAD = "import tensorflow as tf\nimport horovod.tensorflow as hvd\n"
KERAS = "import tensorflow as tf\nimport horovod.tensorflow.keras as hvd\n"
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


@pytest.mark.parametrize(
    ("horovod", "hccl"),
    [
        ("rank", "get_rank_id"),
        ("size", "get_rank_size"),
        ("local_rank", "get_local_rank_id"),
        ("local_size", "get_local_rank_size"),
    ],
)
def test_ranks_come_from_hccl(horovod: str, hccl: str) -> None:
    text = after(HEAD + f"def f():\n    return hvd.{horovod}()  # kept\n", "horovod_ranks", distributed=True)
    assert f"    return {hccl}()  # kept\n" in text
    assert f"from hccl.manage.api import {hccl}\n" in text


def test_without_a_distributed_run_ranks_come_from_the_environment() -> None:
    text = after(HEAD + "def f():\n    return 0.1 * hvd.size(), hvd.rank(), hvd.local_rank()\n", "horovod_ranks")
    assert (
        'return 0.1 * int(os.getenv("RANK_SIZE", "1")), int(os.getenv("RANK_ID", "0")), int(os.getenv("DEVICE_ID"'
        in text
    )
    assert "import os\n" in text


def test_nobody_but_hccl_knows_the_number_of_ranks_on_a_server() -> None:
    check_says("horovod_ranks", HEAD + "def f():\n    return hvd.local_size()\n", "manual", "environment variable")


def test_what_runs_before_main_asks_the_environment() -> None:
    source = HEAD + "SIZE = hvd.size()\ndef main(_, n=hvd.size()):\n    print(hvd.size())\ntf.app.run(main)\n"
    text = after(source, "horovod_ranks", distributed=True)
    assert 'SIZE = int(os.getenv("RANK_SIZE", "1"))' in text
    assert 'def main(_, n=int(os.getenv("RANK_SIZE", "1"))):' in text
    assert "    print(get_rank_size())" in text


def test_a_script_without_main_asks_hccl_since_communication_is_started_before() -> None:
    assert "rate = get_rank_size()" in after(HEAD + "rate = hvd.size()\n", "horovod_ranks", distributed=True)


def test_the_vendors_helpers_in_wrapper_style_and_the_environment_when_asked_for() -> None:
    source = HEAD + "def f():\n    return hvd.rank()\n"
    assert "return get_npu_rank_id()" in after(source, "horovod_ranks", distributed=True, style="wrapper")
    assert 'return int(os.getenv("RANK_ID", "0"))' in after(source, "horovod_ranks", distributed=True, rank="env")


def test_a_function_that_is_passed_on_is_renamed() -> None:
    text = after(HEAD + "def f():\n    return make(rank=hvd.rank)\n", "horovod_ranks", distributed=True)
    assert "return make(rank=get_rank_id)" in text


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


def test_start_and_end_are_taken_out() -> None:
    before = HEAD + "def main():\n    hvd.init()  # why\n    run()\n    hvd.shutdown()\n"
    check_rewrite("horovod_lifecycle", before, HEAD + "def main():\n    # why\n    run()\n", distributed=True)


def test_findings_speak_of_the_original_lines_behind_what_is_gone() -> None:
    again = "import horovod.tensorflow as hvd\n"
    source = again + "hvd.init(  # why\n)\n" + again + "import tensorflow as tf\n"
    result = migrated(source, distributed=True)
    assert result.after.decode() == "# why\nimport tensorflow as tf\n"
    assert [finding.line for finding in result.findings if "import is gone" in finding.message] == [1, 4]
    assert result.lines == (2, 5, 6)


def test_a_block_that_would_be_empty_keeps_a_pass() -> None:
    check_rewrite("horovod_lifecycle", HEAD + "if use: hvd.init()\n", HEAD + "if use: pass\n", distributed=True)


def test_a_script_for_several_devices_says_so_when_it_is_migrated_for_one() -> None:
    result = migrated(HEAD + "hvd.init()\nx = 1\n", "horovod_lifecycle")
    assert any(one.status == "manual" and "--distributed" in one.message for one in result.findings)


def test_communication_is_started_for_the_ranks_that_are_asked_for() -> None:
    source = HEAD + "def main(_):\n  hvd.init()\n  train(hvd.rank())\nif __name__ == '__main__':\n  tf.app.run()\n"
    text = after(source, distributed=True)
    assert "init_sess, npu_init = init_npu()" in text
    assert text.index("init_sess.run(npu_init)") < text.index("train(get_rank_id())")
    assert "hvd" not in text


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("config.gpu_options.visible_device_list = str(hvd.local_rank())\nx = 1\n", "x = 1\n"),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = str(hvd.local_rank())\nx = 1\n", "import os\nx = 1\n"),
        (
            "o = tf.GPUOptions(allow_growth=True, visible_device_list=str(hvd.local_rank()))\n",
            "o = tf.GPUOptions(allow_growth=True)\n",
        ),
        ("tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')\nx = 1\n", "x = 1\n"),
    ],
)
def test_the_choice_of_a_gpu_is_dropped(before: str, later: str) -> None:
    check_rewrite("horovod_devices", HEAD + before, HEAD + later)


def test_devices_that_do_not_come_from_horovod_stay() -> None:
    check_noop("horovod_devices", HEAD + "config.gpu_options.visible_device_list = '0'\nlocal_rank = 1\n")


# ---- the optimizer


def test_other_arguments_are_dropped_and_listed() -> None:
    before = HEAD + "opt = hvd.DistributedOptimizer(\n    opt,  # inner\n    name='d',\n    sparse_as_dense=True)\n"
    result = migrated(before, "horovod_optimizer")
    assert "opt = NPUDistributedOptimizer(\n    opt,  # inner\n    )\n" in result.after.decode()
    assert "sparse" not in result.after.decode()
    assert any("dropped: name='d', sparse_as_dense=True" in one.message for one in result.findings)


@pytest.mark.parametrize("argument", ["op=hvd.Adasum", "op=hvd.Sum", "backward_passes_per_step=4"])
def test_arguments_that_change_the_result_are_named(argument: str) -> None:
    result = migrated(HEAD + f"opt = hvd.DistributedOptimizer(opt, {argument})\n", "horovod_optimizer")
    assert any(one.status == "manual" and "is lost" in one.message for one in result.findings)


def test_an_average_is_what_happens_anyway() -> None:
    result = migrated(HEAD + "opt = hvd.DistributedOptimizer(opt, op=hvd.Average)\n", "horovod_optimizer")
    assert {one.status for one in result.findings} == {"changed"}


def test_keras_optimizers_have_a_wrapper_of_their_own() -> None:
    assert "o = KerasDistributeOptimizer(opt)" in after(
        KERAS + "o = hvd.DistributedOptimizer(opt)\n", "horovod_optimizer"
    )
    source = HEAD + "k = tf.keras.optimizers.SGD(0.1)\no = hvd.DistributedOptimizer(k)\n"
    assert "o = KerasDistributeOptimizer(k)" in after(source, "horovod_optimizer")


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


def test_unpacked_arguments_are_left_to_a_person() -> None:
    check_says("horovod_optimizer", HEAD + "opt = hvd.DistributedOptimizer(opt, **more)\n", "manual", "NPUDistributed")


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


def test_the_hook_of_a_session_is_replaced() -> None:
    source = HEAD + (
        "def f():\n    hook = hvd.BroadcastGlobalVariablesHook(root_rank=1, device='/gpu:0')\n"
        "    return tf.train.MonitoredTrainingSession(hooks=[hook])\n"
    )
    text = after(source, "horovod_broadcast", distributed=True)
    assert "hook = NPUBroadcastGlobalVariablesHook(1, get_rank_id())" in text


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("h = [hvd.BroadcastGlobalVariablesHook(0)]\n", "h = []\n"),
        ("h = [a, hvd.BroadcastGlobalVariablesHook(0), b]\n", "h = [a, b]\n"),
        ("h = [a, hvd.BroadcastGlobalVariablesHook(0)]\n", "h = [a]\n"),
        ("h.append(hvd.BroadcastGlobalVariablesHook(0))\nx = 1\n", "x = 1\n"),
    ],
)
def test_an_estimator_needs_no_hook(before: str, later: str) -> None:
    head = HEAD + "e = tf.estimator.Estimator(f)\n"
    check_rewrite("horovod_broadcast", head + before, head + later)


def test_where_something_holds_the_hook_an_empty_one_takes_its_place() -> None:
    head = HEAD + "e = tf.estimator.Estimator(f)\n"
    text = after(head + "h = hvd.BroadcastGlobalVariablesHook(0)\np = (h, a)\n", "horovod_broadcast")
    assert "h = NpuEmptyHook()\n" in text


def test_the_estimator_may_live_in_another_file() -> None:
    others = {"main.py": "import tensorflow as tf\ne = tf.estimator.Estimator(f)\n"}
    text = after(HEAD + "h = [hvd.BroadcastGlobalVariablesHook(0)]\n", "horovod_broadcast", others=others)
    assert "h = []\n" in text


def test_the_callback_keeps_its_root() -> None:
    source = KERAS + "c = [hvd.callbacks.BroadcastGlobalVariablesCallback(2)]\n"
    assert "c = [NPUBroadcastGlobalVariablesCallback(root_rank=2)]" in after(source, "horovod_broadcast")


def test_the_operation_assigns_each_variable() -> None:
    text = after(HEAD + "sess.run(hvd.broadcast_global_variables(0))\n", "horovod_broadcast")
    assert (
        "sess.run(tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in tf.trainable_variables()]))" in text
    )
    text = after(HEAD + "op = hvd.broadcast_variables(mine, root_rank=0)\n", "horovod_broadcast")
    assert "op = tf.group(*[var.assign(hccl_ops.broadcast([var], 0)[0]) for var in mine])" in text


# ---- collectives


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("hvd.allreduce(x)", 'hccl_ops.allreduce(x, "sum") / get_rank_size()'),
        ("2 * hvd.allreduce(x, average=True)", '2 * (hccl_ops.allreduce(x, "sum") / get_rank_size())'),
        ("hvd.allreduce(x)[0]", '(hccl_ops.allreduce(x, "sum") / get_rank_size())[0]'),
        ("hvd.allreduce(x, False)", 'hccl_ops.allreduce(x, "sum")'),
        ("hvd.allreduce(a + b, op=hvd.Sum)", 'hccl_ops.allreduce(a + b, "sum")'),
        ("hvd.allreduce(x, op=hvd.Max, name='m')", 'hccl_ops.allreduce(x, "max")'),
        (
            "f(hvd.allreduce(hvd.allreduce(x, average=False)))",
            'f(hccl_ops.allreduce(hccl_ops.allreduce(x, "sum"), "sum") / get_rank_size())',
        ),
        ("hvd.allgather(x)", "hccl_ops.allgather(x, get_rank_size())"),
        ("hvd.broadcast(x, root_rank=0)", "hccl_ops.broadcast([x], 0)[0]"),
    ],
)
def test_tensors_go_through_hccl(before: str, later: str) -> None:
    text = after(HEAD + f"def f():\n    return {before}\n", "horovod_collectives", distributed=True)
    assert f"    return {later}\n" in text, text


@pytest.mark.parametrize(
    "call",
    [
        "hvd.allreduce(x, average=flag)",
        "hvd.allreduce(x, op=hvd.Adasum)",
        "hvd.allreduce(x, prescale_factor=2)",
        "hvd.allreduce(*x)",
    ],
)
def test_a_reduction_that_cannot_be_known_is_left_to_a_person(call: str) -> None:
    check_says("horovod_collectives", HEAD + f"y = {call}\n", "manual", "allreduce")


def test_a_comment_within_a_call_is_not_swallowed() -> None:
    check_says("horovod_collectives", HEAD + "y = hvd.allreduce(\n    x  # the loss\n)\n", "manual", "by hand")


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


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\nx = 1\n", "x = 1\n"),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    print('no')\nx = 1\n",
            "try:\n    pass\nexcept ImportError:\n    print('no')\nx = 1\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd  # maybe\nexcept ImportError:\n    hvd = None\nx = 1\n",
            "try:\n    pass  # maybe\nexcept ImportError:\n    hvd = None\nx = 1\n",
        ),
        ("if multi:\n    import horovod.tensorflow as hvd\nx = 1\n", "if multi:\n    pass\nx = 1\n"),
        ("import os, horovod.tensorflow as hvd\nx = 1\n", "import os\nx = 1\n"),
        ("import horovod.tensorflow as hvd, os\nx = 1\n", "import os\nx = 1\n"),
        ("import horovod.tensorflow as hvd; import os\nx = 1\n", "import os\nx = 1\n"),
    ],
)
def test_the_import_goes_in_whatever_form(before: str, later: str) -> None:
    check_rewrite("horovod_import", before, later)


GUARDED = "import tensorflow as tf\ntry:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    hvd = None\n"
THERE = "import tensorflow as tf\nhvd = True  # hccl does Horovod's part, and is always there\n"


@pytest.mark.parametrize(
    "use",
    [
        "run(hvd)",
        "x = hvd or other",
        "x = use and hvd",
        "x = [hvd]",
        "x = hvd is other",
        "x = hvd == 1",
        "x = None < hvd",
        "x = str(hvd)",
        "x = -hvd",
        "if hvd.rank: pass",
    ],
)
def test_a_use_that_asks_more_than_whether_it_is_there_keeps_the_import(use: str) -> None:
    status, why = ("manual", "(line 7)") if "hvd.rank" in use else ("unresolved", "(script.py:7)")
    check_says("horovod_import", GUARDED + f"if hvd is not None:\n    {use}\n", status, why)


@pytest.mark.parametrize("taken", ["from script import hvd\nhvd.init()\n", "import script\nscript.hvd.init()\n"])
def test_an_import_that_another_file_takes_becomes_true_there(taken: str) -> None:
    source = GUARDED + "x = 1\n"
    others = {"other.py": "import tensorflow as tf\n" + taken}
    check_rewrite("horovod_import", source, THERE + "x = 1\n", others=others)
    there = migrated(others["other.py"], path="other.py", others={"script.py": source}, distributed=True)
    assert ".init()" not in there.after.decode()


@pytest.mark.parametrize(
    "fallback", ["hvd = Alone()", "import fake as hvd"], ids=["an object of its own", "another module"]
)
def test_a_stand_in_of_the_script_is_not_taken_for_horovod(fallback: str) -> None:
    source = GUARDED.replace("hvd = None", fallback) + "if hvd is not None:\n    hvd.init()\n"
    assert migrated(source, distributed=True).after.decode() == source


@pytest.mark.parametrize(
    "question",
    [
        "if hvd is None: leave()",
        "if hvd is not None and many: go()",
        "if None != hvd: go()",
        "if not hvd: leave()",
        "x = 1 if hvd else 2",
        "x = hvd and many",
        "x = [1 for one in all if hvd]",
        "assert hvd or many",
        "while bool(hvd): go()",
        "many = hvd is not None",
    ],
)
def test_a_question_whether_it_is_there_is_answered_yes(question: str) -> None:
    check_rewrite("horovod_import", GUARDED + question + "\n", THERE + question + "\n")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "try:\n    import horovod.tensorflow as hvd\n    HAS = True\nexcept ImportError:\n    HAS = False\n",
            "HAS = True\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    x, y = 1, 2\nelse:\n    HAS = True\n",
            "try:\n    pass\nexcept ImportError:\n    x, y = 1, 2\nelse:\n    HAS = True\n",
        ),
        (
            "try:\n    import horovod.tensorflow as hvd\nexcept ImportError:\n    HAS = False\nelse:\n    HAS = True\n",
            "HAS = True\n",
        ),
    ],
)
def test_a_flag_that_says_whether_it_is_there_stays_true(before: str, later: str) -> None:
    check_rewrite("horovod_import", before + "if HAS: go()\n", later + "if HAS: go()\n")


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (
            "if many:\n    import horovod.tensorflow as hvd\nelse:\n    hvd = None\n",
            "if many:\n    hvd = True{}\nelse:\n    hvd = None\n",
        ),
        ("import horovod.tensorflow as hvd  # maybe\n", "hvd = True  # maybe\n"),
        ("import horovod.tensorflow as hvd; x = 1\n", "hvd = True; x = 1\n"),
        ("import os, horovod.tensorflow as hvd\n", "import os\nhvd = True{}\n"),
        (
            "try:\n    import horovod.tensorflow as hvd\n    x = 1\nexcept ImportError:\n    hvd, x = None, 2\n",
            "try:\n    hvd = True{}\n    x = 1\nexcept ImportError:\n    hvd, x = None, 2\n",
        ),
    ],
)
def test_what_is_asked_for_is_true_wherever_it_was_imported(before: str, later: str) -> None:
    why = "  # hccl does Horovod's part, and is always there"
    check_rewrite("horovod_import", before + "if hvd: go()\n", later.format(why) + "if hvd: go()\n")


def test_looking_for_the_package_is_left_to_a_person() -> None:
    source = HEAD + "import importlib.util\nHAS = importlib.util.find_spec('horovod') is not None\nhvd.init()\n"
    said = [one.message for one in migrated(source, distributed=True).findings if one.status == "manual"]
    assert any("find_spec('horovod') does not find Horovod" in message for message in said), said


def test_looking_for_other_packages_is_nobody_s_business() -> None:
    check_noop("horovod_leftovers", HEAD + "import importlib.util\nHAS = importlib.util.find_spec('numpy')\n")
    check_noop("horovod_leftovers", "import importlib.util\nHAS = importlib.util.find_spec('horovod')\n")


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
