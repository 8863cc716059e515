"""Rehearsal: a script is run without the accelerator, on a stand-in that enforces the accelerator's documented limits.

A stage is the stand-in for one framework: `torch_stage/`, `tf1_stage/`. `limits.py` reports the script's lines that a
card would refuse. `process.py` runs the script in a separate process and, unless --here is given, a separate view of
the user's files; `child.py` is that process. `scripts/hook` installs the stand-in in the processes that the script
starts itself. `observe.py` records what a comparison needs. All output of a rehearsal goes to one folder, its record
(RECORD in the docstrings).
"""
