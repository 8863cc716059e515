"""Where a training iteration's time goes, and what to do about it.

Profiles are collected (`collector.py`) or read from files of other tools (`readers/`); both give a `record.Profile`.
The summary, the report, the advice and the comparison are made from that record alone. Some kinds of advice also
measure something on this machine (`trials.py`). A recipe is a training configuration of viaduct.
"""
