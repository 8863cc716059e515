"""Rehearsal: a migrated script run without the accelerator, on stand-ins that enforce its documented limits.

`torch_stage/` and `tf1_stage/` are the stand-ins; `limits.py` says what a card would not do, and where; `process.py`
runs the script in a process and a folder of its own, `child.py` is that process, `scripts/hook` installs the stand-in
in the processes that the script starts itself; `observe.py` keeps what a comparison needs.
"""
