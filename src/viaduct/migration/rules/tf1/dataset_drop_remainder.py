"""Let a dataset's batches all have the same size.

     import tensorflow as tf
     ds = tf.data.TFRecordDataset(files)
    -ds = ds.batch(32)
    +ds = ds.batch(32, drop_remainder=True)

The accelerator compiles a graph for fixed shapes, so a shorter last batch cannot run. Only datasets are meant: a
`.batch()` of something else, and the queue functions `tf.train.batch`, are left alone.
"""

from __future__ import annotations

import ast

from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="D1", kind="mandatory")

POSITIONS = {"batch": 1, "padded_batch": 3}


@rule.method("batch", "padded_batch")
def drop_remainder(site: Site) -> None:
    receiver = site.values.kind(site.node.func.value)
    if receiver == "dataset":
        force_true(site, POSITIONS[site.name])
    elif receiver is None and looks_like_dataset(site):
        site.manual(
            f"`.{site.name}` may be a dataset's: if it is, it needs drop_remainder=True",
            zh=f"`.{site.name}` 可能是数据集方法:若是,需加 drop_remainder=True",
        )


@rule.call("tensorflow.data.experimental.map_and_batch", "tensorflow.contrib.data.map_and_batch")
def map_and_batch(site: Site) -> None:
    force_true(site, 3)


def force_true(site: Site, position: int) -> None:
    present = site.argument("drop_remainder", position)
    if isinstance(present, ast.Constant) and present.value is True:
        return
    if site.unpacked and present is None:
        site.manual(
            "arguments are unpacked here; see to drop_remainder=True",
            zh="此处参数为解包形式,请确认 drop_remainder=True",
        )
        return
    site.set_argument("drop_remainder", "True", position)
    site.changed(
        "the last, shorter batch is dropped: graphs are compiled for fixed shapes",
        zh="丢弃最后不足一批的数据:图按固定 shape 编译",
    )


def looks_like_dataset(site: Site) -> bool:
    """A name that says so; everything else with a method `batch` is somebody's own."""
    receiver = site.node.func.value
    return isinstance(receiver, ast.Name) and receiver.id.lower() in ("ds", "dataset", "data_set", "train_dataset")
