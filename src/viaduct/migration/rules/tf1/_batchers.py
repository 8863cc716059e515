"""Functions of TensorFlow, other than Dataset.batch, that make batches. Not a rule: the ledger uses it as well."""

from __future__ import annotations

from viaduct.migration.predicates import is_constant
from viaduct.migration.rule import Site

HOMES = ("tensorflow.data.experimental", "tensorflow.contrib.data")
QUEUES = tuple(
    f"tensorflow.train.{name}"
    for name in (
        *("batch", "batch_join", "shuffle_batch", "shuffle_batch_join"),
        *("maybe_batch", "maybe_batch_join", "maybe_shuffle_batch", "maybe_shuffle_batch_join"),
    )
)
FEATURES = tuple(f"{home}.make_batched_features_dataset" for home in HOMES)
CSV = tuple(f"{home}.make_csv_dataset" for home in HOMES)
BUCKETS = tuple(f"{home}.bucket_by_sequence_length" for home in HOMES)
SPARSE = tuple(f"{home}.dense_to_sparse_batch" for home in HOMES)
EPOCHS = {FEATURES: 6, CSV: 10}  # position of num_epochs


def is_whole(site: Site, name: str) -> bool:
    """Return True if all batches that a call makes have one size, as far as its arguments are written out.

    A queue function counts as whole unless the keyword allow_smaller_final_batch says otherwise.
    """
    if name in QUEUES:
        allowed = site.argument("allow_smaller_final_batch")
        return allowed is None or is_constant(allowed, False)
    if name in FEATURES and is_constant(site.argument("drop_final_batch", 14), True):
        return True
    for names, position in EPOCHS.items():
        if name in names:
            epochs = site.argument("num_epochs", position)
            return not site.has_unpacked and (epochs is None or is_constant(epochs, None))
    return False
