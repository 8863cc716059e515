"""Runs a user's Python script in this process, and detects where its training steps begin and end.

`runner.py` runs it as `python script.py` would; `steps.py` detects its steps; `roots.py` finds its networks;
`notebooks.py` and `notebook_runs.py` read notebooks as scripts; `hook/` reaches the processes that it starts itself.
"""
