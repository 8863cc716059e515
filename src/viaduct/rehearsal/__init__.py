"""Rehearsal: a migrated script run without the accelerator, on stand-ins that enforce its documented limits.

A stage is the set of stand-ins for one framework: `torch_stage/`, `tf1_stage/`. `limits.py` reports the script's lines
that a card would refuse; `process.py` runs the script in a process and a folder of its own, `child.py` is that process,
`scripts/hook` installs the stand-in in the processes that the script starts itself; `observe.py` records what a
comparison needs. All output of a rehearsal goes to one folder, its record (RECORD in the docstrings).
"""
