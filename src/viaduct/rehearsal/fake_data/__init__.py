"""Synthetic data for missing datasets (`--fake-data`).

`tf_files.py` replaces missing TFRecord files if the script declares their features, `keras_sets.py` and
`torchvision_sets.py` replace datasets of a known image size. Other missing data stays missing.
"""

import sys


def print_note(text: str) -> None:
    print(f"viaduct rehearse: {text}", file=sys.stderr, flush=True)
