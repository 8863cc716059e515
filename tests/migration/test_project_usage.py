"""Facts from other files of a project that a rule of one file needs."""

from __future__ import annotations

from viaduct.migration.project import Project, survey

TF = "import tensorflow as tf\n"


def survey_files(**files: str) -> Project:
    return survey((f"{name}.py".replace("__", "/"), text.encode()) for name, text in files.items())


def test_a_file_that_only_defines_does_nothing() -> None:
    project = survey_files(a=TF + "def f(x):\n    return x.fit(1), x.train(2), x.rank()\n")
    assert not (project.keras_files | project.rank_files | project.estimator_cycle_files)


def test_who_runs_keras_who_asks_for_ranks() -> None:
    project = survey_files(
        keras=TF + "m = tf.keras.Sequential()\nm.fit(x)\n",
        horovod="import horovod.tensorflow as hvd\nhvd.init()\nprint(hvd.rank())\n",
        shard=TF + "def f(c, d):\n    return d.shard(c.num_input_pipelines, c.input_pipeline_id)\n",
        hccl=TF + "from hccl.manage.api import get_rank_id\nget_rank_id()\n",
        build="import horovod.tensorflow as hvd\nhvd.init()\n",
    )
    assert project.keras_files == {"keras.py"}
    assert project.rank_files == {"horovod.py", "shard.py", "hccl.py"}
    assert project.files_calling["horovod.tensorflow.init"] == {"horovod.py", "build.py"}


def test_input_functions_of_specs_are_found_by_position_and_keyword() -> None:
    functions = "def one():\n    pass\ndef two():\n    pass\ndef three():\n    pass\n"
    project = survey_files(
        a=TF + functions + "tf.estimator.TrainSpec(one, 10)\ntf.estimator.EvalSpec(input_fn=two)\nother.train(three)\n",
        b="from tensorflow.estimator import EvalSpec\n" + functions + "EvalSpec(one)\n",
    )
    assert project.input_functions == {"a.one": {"train"}, "a.two": {"evaluate"}, "b.one": {"evaluate"}}


def test_rounds_of_an_estimator() -> None:
    head = TF + "def f():\n    e = tf.estimator.Estimator(m)\n"
    project = survey_files(
        once=head + "    e.train(a)\n",
        loop=head + "    for i in x:\n        e.train(a)\n",
        row=head + "    e.train(a)\n    e.evaluate(a)\n",
    )
    assert project.estimator_cycle_files == {"loop.py", "row.py"}


def test_imports_are_followed_by_the_end_of_their_name() -> None:
    project = survey_files(
        main=TF + "from official.resnet import loop\n",
        loop=TF + "from . import data\n",
        data=TF,
        other=TF + "import maindata\n",
    )
    assert project.all_imports("main.py") == {"main.py", "loop.py", "data.py"}
    assert project.all_imports("other.py") == {"other.py"}


def test_helpers_that_make_a_sessions_config() -> None:
    project = survey_files(
        helper=TF + "def used():\n    return tf.ConfigProto()\ndef unused():\n    return tf.ConfigProto()\n",
        main=TF
        + "from helper import used, unused\nc = used()\ntf.train.MonitoredTrainingSession(config=c)\nunused()\n",
    )
    assert project.session_config_functions == {"helper.used"}


def test_an_optimizer_derives_from_a_class_of_any_other_file() -> None:
    project = survey_files(
        a=TF + "from b import Base\nclass Mine(Base):\n    pass\nclass Other(object):\n    pass\n",
        b=TF + "from c import Root\nclass Base(Root):\n    pass\n",
        c=TF + "class Root(tf.train.AdamOptimizer):\n    pass\n",
    )
    assert project.optimizer_classes == {"a.Mine", "b.Base", "c.Root"}


def test_appended_hooks_count_as_a_broadcast() -> None:
    text = TF + "from npu_bridge.npu_init import *\nhooks = npu_hooks_append(hooks_list=[])\n"
    assert survey_files(a=text).broadcast_files == {"a.py"}
