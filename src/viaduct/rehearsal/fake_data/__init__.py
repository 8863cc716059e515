"""Synthetic data for missing datasets, where a script declares their shapes (`--fake-data`).

`tf_files.py` stands in for missing TFRecord files, `torchvision_sets.py` for torchvision's data sets whose images
have a known size. Nothing else is guessed: a folder that a script reads by itself stays missing, and is told so.
"""
