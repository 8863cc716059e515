"""Make batches equally large where a function other than `Dataset.batch` creates them.

     import tensorflow as tf
    -images = tf.train.batch([image], 32, allow_smaller_final_batch=True)
    +images = tf.train.batch([image], 32, allow_smaller_final_batch=False)
    -ds = tf.data.experimental.make_batched_features_dataset("a", 32, columns, num_epochs=1)
    +ds = tf.data.experimental.make_batched_features_dataset("a", 32, columns, num_epochs=1, drop_final_batch=True)

The NPU compiles a graph for fixed shapes, so a shorter last batch cannot run. Readers that repeat their files without
end (num_epochs=None) have no shorter batch. A CSV reader with num_epochs, buckets by sequence length (each has its own
shape) and sparse batches (which have no fixed shape) need manual review.
"""

from __future__ import annotations

from viaduct.migration.notices import Notice, add_notices
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._batchers import (
    BUCKETING_FUNCTIONS,
    CSV_READERS,
    DROP_FINAL_BATCH_POSITION,
    FEATURE_READERS,
    QUEUE_FUNCTIONS,
    SPARSE_FUNCTIONS,
    has_equal_batches,
    report_dropped_batch,
)

rule = Rule(__name__, target_needs="batches", spec_rows=("D1",))


@rule.call(*QUEUE_FUNCTIONS)
def refuse_smaller_batch(site: Site) -> None:
    """Set allow_smaller_final_batch to False; report a call with unpacked arguments, which may hold it."""
    if has_equal_batches(site, site.name):
        return
    keyword = site.keyword("allow_smaller_final_batch")
    if keyword is None:
        site.request_review(
            "arguments are unpacked here: make sure that allow_smaller_final_batch is not True",
            zh="此处参数为解包形式:请确认 allow_smaller_final_batch 不为 True",
        )
        return
    site.edit.replace_node(keyword.value, "False")
    report_dropped_batch(site)


@rule.call(*FEATURE_READERS)
def drop_final_batch(site: Site) -> None:
    """Add drop_final_batch=True; report a call with unpacked arguments, which may hold it already."""
    if has_equal_batches(site, site.name):
        return
    if site.has_unpacked_arguments:
        site.request_review(
            "arguments are unpacked here: make sure that drop_final_batch is True",
            zh="此处参数为解包形式:请确认 drop_final_batch 为 True",
        )
        return
    site.set_argument("drop_final_batch", "True", DROP_FINAL_BATCH_POSITION)
    report_dropped_batch(site)


@rule.call(*CSV_READERS)
def report_csv_reader(site: Site) -> None:
    if not has_equal_batches(site, site.name):
        site.request_review(
            "with num_epochs the last batch may be shorter, and this reader cannot drop it: leave num_epochs out and "
            "end the run after a number of steps",
            zh="指定 num_epochs 时最后一批可能变短,且该接口无法丢弃:请去掉 num_epochs,改用步数限制",
        )


add_notices(
    rule,
    Notice(
        BUCKETING_FUNCTIONS,
        "each bucket has its own shape, and the graph is compiled for fixed ones: pad all to one length and pass "
        "drop_remainder=True, or use dynamic shapes",
        "各桶的 shape 不同,而图按固定 shape 编译:请统一补齐到同一长度并设置 drop_remainder=True,或使用动态 shape",
    ),
    Notice(
        SPARSE_FUNCTIONS,
        "sparse batches have no fixed shape: make dense ones (padded_batch with drop_remainder=True)",
        "稀疏批没有固定 shape:请改为稠密批(padded_batch,drop_remainder=True)",
    ),
)
