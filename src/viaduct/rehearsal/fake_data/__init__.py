"""Synthetic data for missing datasets, where a script declares their shapes (`--fake-data`).

`tf_files.py` replaces missing TFRecord files, `keras_sets.py` and `torchvision_sets.py` datasets whose images have a
known size. Nothing else is guessed: other missing data stays missing.
"""

import sys


def print_note(text: str) -> None:
    """Print a note on stderr."""
    print(f"viaduct rehearse: {text}", file=sys.stderr, flush=True)
