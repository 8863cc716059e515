"""Where a training iteration's time goes, and what to do about it.

Profiles are collected (`collector.py` and what it uses) or read from files of other tools (`readers/`); both give a
`record.Profile`. The summary, the report, the advice, the comparison and the trace file read nothing else.
"""
