from __future__ import annotations

import pytest

from migration.checking import check_noop, check_says, migrate_source

HEAD = "import tensorflow as tf\n"
RULE = "dataset_drop_remainder"


def list_messages(result: object, status: str) -> str:
    return " ".join(finding.message for finding in result.findings if finding.status == status)  # type: ignore[attr-defined]


OTHERS = """import webdataset as wds
from datasets import load_dataset

def pipeline(source, n):
    return source.shuffle(1000).batch(n)

def again(corpus):
    corpus = corpus.shuffle(seed=3)
    return corpus.batch(16)

a = pipeline(wds.WebDataset("x.tar"), 3)
b = wds.WebDataset("x.tar").shuffle(3).batch(3)
c = load_dataset("imdb")["train"].shuffle().batch(16)
ds = load_dataset("imdb")["train"]
d = ds.batch(4)
e = again(ds)
"""
PREDICTION = """
import functools
import tensorflow as tf
def model_fn(features, labels, mode):
    return tf.estimator.EstimatorSpec(mode, predictions=features)
est = tf.estimator.Estimator(model_fn)
"""
MAKE = "def examples(size=8):\n    return tf.data.Dataset.range(20).batch(size)\n"
METHOD = "class Job:\n    def examples(self, size=4):\n        return tf.data.Dataset.range(20).batch(size)\n"


@pytest.mark.parametrize(
    "source",
    [
        "class Loader:\n    def batch(self, n):\n        return n\nLoader().batch(3)\n",
        "x = tf.train.batch([a], 3)\n",
        "x = tf.train.shuffle_batch([a], 3, 4, 5)\n",
        "import loader\nloader.batch(3)\n",
        "def f(things):\n    return things.batch(3)\n",
        "d = tf.data.TFRecordDataset(f).batch(3, drop_remainder=True)\n",
        "d = tf.data.TFRecordDataset(f).batch(3, True)\n",
        "d = tf.data.TFRecordDataset(f).apply(tf.contrib.data.batch_and_drop_remainder(3))\n",
        "ds = tf.data.TFRecordDataset(f)\nds = Loader()\nx.batch(3)\n",
    ],
)
def test_what_is_no_dataset_is_left_alone(source: str) -> None:
    check_noop(RULE, HEAD + source)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.data.TFRecordDataset(f).batch(n)", "tf.data.TFRecordDataset(f).batch(n, drop_remainder=True)"),
        ("tf.data.Dataset.range(9).batch(n, False)", "tf.data.Dataset.range(9).batch(n, True)"),
        (
            "tf.data.Dataset.range(9).batch(n, drop_remainder=x)",
            "tf.data.Dataset.range(9).batch(n, drop_remainder=True)",
        ),
        (
            "tf.data.Dataset.range(9).padded_batch(n, s, None, False)",
            "tf.data.Dataset.range(9).padded_batch(n, s, None, True)",
        ),
        (
            "d.apply(tf.data.experimental.map_and_batch(g, batch_size=n))",
            "d.apply(tf.data.experimental.map_and_batch(g, batch_size=n, drop_remainder=True))",
        ),
        (
            "d.apply(tf.contrib.data.map_and_batch(g, n, 2, False))",
            "d.apply(tf.contrib.data.map_and_batch(g, n, 2, True))",
        ),
    ],
)
def test_the_last_batch_is_dropped(before: str, after: str) -> None:
    assert migrate_source(f"{HEAD}d = {before}\n", RULE).after.decode() == f"{HEAD}d = {after}\n"


def test_datasets_are_followed_through_names_branches_and_parameters() -> None:
    source = (
        HEAD
        + """
def source(files):
    ds = tf.data.Dataset.from_tensor_slices(files)
    if shuffled:
        ds = ds.shuffle(10)
    return ds.map(parse)

def train(files):
    d = source(files)
    d = d.repeat()
    return d.batch(4)

def pipeline(dataset):
    return dataset.map(parse, num_parallel_calls=2).batch(4)

class Input:
    def __init__(self, files):
        self.ds = tf.data.TFRecordDataset(files)
    def get(self):
        return self.ds.batch(4)
"""
    )
    assert migrate_source(source, RULE).after.decode().count("batch(4, drop_remainder=True)") == 3


def test_a_dataset_from_another_file_is_known() -> None:
    other = HEAD + "def source(files):\n    return tf.data.TFRecordDataset(files)\n"
    main = HEAD + "from reading import source\nd = source(f).batch(4)\n"
    assert "drop_remainder=True" in migrate_source(main, RULE, others={"reading.py": other}).after.decode()


def test_an_object_that_looks_like_a_dataset_needs_review() -> None:
    check_says(RULE, HEAD + "from reading import source\ndataset = source(f)\ndataset.batch(4)\n", "manual", "may be")


def test_a_parameters_value_is_replaced_and_its_callers_are_named() -> None:
    source = HEAD + "def pipe(files, drop):\n    return tf.data.TFRecordDataset(files).batch(4, drop_remainder=drop)\n"
    assert "has no effect" in list_messages(migrate_source(source, RULE), "advice")
    caller = "import tensorflow as tf\nfrom script import pipe\npipe(f, False)\npipe(f, drop=True)\n"
    assert "main.py:3, main.py:4" in list_messages(migrate_source(source, RULE, others={"main.py": caller}), "advice")


def test_examples_lost_in_evaluation_get_advice() -> None:
    source = HEAD + "def eval_input_fn():\n    return tf.data.TFRecordDataset(f).batch(4)\n"
    assert "lost" in list_messages(migrate_source(source, RULE), "advice")


def test_the_batches_of_other_libraries_are_left_alone() -> None:
    check_noop(RULE, HEAD + OTHERS)


@pytest.mark.parametrize("method", ["shuffle(9)", "repeat()", "prefetch(2)", "flat_map(f)"])
def test_methods_that_other_objects_have_too_prove_no_dataset(method: str) -> None:
    check_says(RULE, f"{HEAD}def f(source):\n    return source.{method}.batch(3)\n", "manual", "may be a dataset's")


@pytest.mark.parametrize(
    "use",
    [
        "interleave(g, 2)",
        "map(g, num_parallel_calls=2)",
        "prefetch(tf.data.experimental.AUTOTUNE)",
        "apply(tf.data.experimental.ignore_errors())",
        "shuffle(9).padded_batch(2, s, drop_remainder=True)",
    ],
)
def test_methods_that_only_datasets_have_prove_one(use: str) -> None:
    result = migrate_source(f"{HEAD}def f(source):\n    return source.{use}.batch(3)\n", RULE)
    assert ".batch(3, drop_remainder=True)" in result.after.decode()


def test_an_annotated_parameter_is_a_dataset() -> None:
    result = migrate_source(f"{HEAD}def f(x: tf.data.Dataset):\n    return x.batch(3)\n", RULE)
    assert ".batch(3, drop_remainder=True)" in result.after.decode()


def test_a_folder_of_the_project_is_not_the_library_of_its_name() -> None:
    others = {"datasets/__init__.py": "def load_dataset(x): return x\n"}
    source = "from datasets import load_dataset\nds = load_dataset('x')\nd = ds.batch(4)\n"
    check_says(RULE, HEAD + source, "manual", "may be a dataset's", others=others)


def test_a_prediction_s_last_batch_is_padded_when_requested_and_evaluation_s_is_not() -> None:
    source = HEAD + "def {}_input_fn(n):\n    ds = tf.data.TFRecordDataset(f)\n    return ds.batch(n)\n"
    text = migrate_source(source.format("predict"), RULE, pad_predict=True).after.decode()
    assert "return ds.concatenate(ds.repeat().take(n - 1)).batch(n, drop_remainder=True)" in text
    text = migrate_source(source.format("eval"), RULE, pad_predict=True).after.decode()
    assert "return ds.batch(n, drop_remainder=True)" in text


@pytest.mark.parametrize(
    ("batched", "padded"),
    [
        (
            "tf.data.TFRecordDataset(f).map(g).batch(n)",
            "tf.data.TFRecordDataset(f).map(g).apply(lambda ds: ds.concatenate(ds.repeat().take(n - 1)))"
            ".batch(n, drop_remainder=True)",
        ),
        (
            "d.apply(tf.contrib.data.map_and_batch(g, batch_size=p['size']))",
            "d.concatenate(d.repeat().take(p['size'] - 1))"
            ".apply(tf.contrib.data.map_and_batch(g, batch_size=p['size'], drop_remainder=True))",
        ),
    ],
)
@pytest.mark.parametrize(
    "run",
    [
        "tf.estimator.Estimator(m).predict(input_fn=builder(2))\n",
        "e = tf.contrib.tpu.TPUEstimator(m, predict_batch_size=4)\nfn = builder(2)\ne.predict(fn)\n",
        "any.predict(input_fn=lambda: builder(2))\n",
        "import functools\nany.predict(input_fn=functools.partial(builder, n=2))\n",
    ],
)
def test_data_for_predict_is_padded_whatever_its_functions_name(batched: str, padded: str, run: str) -> None:
    source = HEAD + "def builder(n, p):\n    def input_fn(params):\n        d = tf.data.TFRecordDataset(f)\n"
    source += f"        return {batched}\n    return input_fn\n{run}"
    assert padded in migrate_source(source, RULE, pad_predict=True).after.decode()
    assert "are lost" in list_messages(migrate_source(source, RULE), "manual")


def test_data_for_training_and_predict_needs_manual_review() -> None:
    source = HEAD + "def make(n):\n    return tf.data.TFRecordDataset(f).batch(n)\n"
    others = {"run.py": HEAD + "from script import make\ne.train(input_fn=make)\ne.predict(input_fn=make)\n"}
    result = migrate_source(source, RULE, others=others, pad_predict=True)
    assert "return tf.data.TFRecordDataset(f).batch(n, drop_remainder=True)\n" in result.after.decode()
    assert "as well as prediction" in list_messages(result, "manual")


def test_a_prediction_that_cannot_be_padded_needs_manual_review() -> None:
    source = HEAD + "def predict_fn():\n    return tf.data.TFRecordDataset(f).batch(size())\n"
    assert "cannot be padded" in list_messages(migrate_source(source, RULE, pad_predict=True), "manual")


def test_a_dataset_in_a_reassigned_attribute_drops_the_last_batch() -> None:
    before = HEAD + "class Reader:\n    def __init__(self, files):\n        self.ds = tf.data.TFRecordDataset(files)\n"
    before += "        self.ds = self.ds.map(f)\n" * 16 + "        self.ds = self.ds.batch(8)\n"
    assert migrate_source(before, RULE).after.decode() == before.replace("batch(8)", "batch(8, drop_remainder=True)")


@pytest.mark.parametrize(
    "body",
    [
        MAKE + "list(est.predict(input_fn=examples))\n",
        MAKE + "list(est.predict(lambda: examples(4)))\n",
        MAKE + "list(est.predict(functools.partial(examples, size=4)))\n",
        MAKE + "made = functools.partial(examples, 4)\nlist(est.predict(lambda: made()))\n",
        MAKE + "chosen = examples if FAST else other\nlist(est.predict(chosen))\n",
        MAKE + "options = {'input_fn': examples}\nlist(est.predict(**options))\n",
        MAKE + "list(est.predict(**dict(input_fn=examples)))\n",
        MAKE + "def data():\n    return examples(4).prefetch(1)\nlist(est.predict(data))\n",
        MAKE
        + "def data():\n    def inner():\n        return examples(4)\n    return inner\nlist(est.predict(data()))\n",
        METHOD + "    def run(self):\n        return list(est.predict(self.examples))\n",
        METHOD + "    def run(self):\n        return list(est.predict(lambda: self.examples(2)))\n",
        METHOD + "job = Job()\nlist(est.predict(job.examples))\n",
        "list(est.predict(lambda: tf.data.Dataset.range(20).batch(4)))\n",
    ],
)
def test_lost_examples_of_predict_are_always_reported(body: str) -> None:
    result = migrate_source(PREDICTION + body, "dataset_drop_remainder")
    assert b"drop_remainder=True" in result.after
    assert [finding.status for finding in result.findings if "predict() gets this data" in finding.message] == [
        "manual"
    ]
    padded = migrate_source(PREDICTION + body, "dataset_drop_remainder", pad_predict=True)
    assert b".repeat().take(" in padded.after


def test_data_of_training_alone_needs_no_padding() -> None:
    result = migrate_source(
        PREDICTION + MAKE + "est.train(examples)\nmodel.predict(others)\n", "dataset_drop_remainder"
    )
    assert not [finding for finding in result.findings if "predict()" in finding.message]
