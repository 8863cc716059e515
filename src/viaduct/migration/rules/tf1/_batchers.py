"""Functions of TensorFlow, other than Dataset.batch, that create batches."""

from __future__ import annotations

from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Site

DATA_MODULES = ("tensorflow.data.experimental", "tensorflow.contrib.data")
QUEUE_FUNCTIONS = tuple(
    f"tensorflow.train.{prefix}{name}"
    for prefix in ("", "maybe_")
    for name in ("batch", "batch_join", "shuffle_batch", "shuffle_batch_join")
)
FEATURE_READERS = tuple(f"{module}.make_batched_features_dataset" for module in DATA_MODULES)
CSV_READERS = tuple(f"{module}.make_csv_dataset" for module in DATA_MODULES)
BUCKETING_FUNCTIONS = tuple(f"{module}.bucket_by_sequence_length" for module in DATA_MODULES)
SPARSE_FUNCTIONS = tuple(f"{module}.dense_to_sparse_batch" for module in DATA_MODULES)
# Parts of the names of functions that do not train.
EVALUATION_NAMES = ("eval", "predict", "test", "infer", "valid", "serving")
DROP_FINAL_BATCH_POSITION = 14  # among the arguments of FEATURE_READERS
NUM_EPOCHS_POSITIONS = ((FEATURE_READERS, 6), (CSV_READERS, 10))  # functions, position of their argument num_epochs


def has_equal_batches(site: Site, name: str) -> bool:
    """Return True if the arguments of the site's call show that all batches have the same size.

    `name`: the qualified name of the called function.
    """
    if name in QUEUE_FUNCTIONS:
        allowed = site.argument("allow_smaller_final_batch")
        return is_constant(allowed, False) or (allowed is None and not site.has_unpacked_arguments)
    if name in FEATURE_READERS and is_constant(site.argument("drop_final_batch", DROP_FINAL_BATCH_POSITION), True):
        return True
    for names, position in NUM_EPOCHS_POSITIONS:
        if name in names:
            epochs = site.argument("num_epochs", position)
            is_endless = epochs is None or is_constant(epochs, None)
            return is_endless and not site.has_unpacked_arguments
    return False


def report_dropped_batch(site: Site) -> None:
    site.report_change(
        "the last, shorter batch is dropped: graphs are compiled for fixed shapes",
        zh="丢弃最后不足一批的数据:图按固定 shape 编译",
    )
