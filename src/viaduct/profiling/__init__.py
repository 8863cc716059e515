"""Profiles of training: the time of an iteration by phase, operator and kernel, and advice on how to shorten it.

Profiles are collected (`collector.py`) or read from files of other tools (`readers/`); both give a `record.Profile`.
The summary, the report, the advice and the comparison are made from that record alone. Only some advice also measures
something on this machine (`microbenchmarks.py`). A recipe is a training configuration of viaduct.
"""
