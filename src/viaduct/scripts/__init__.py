"""Run a user's Python script in this process, and detect where its training steps begin and end.

`runner.py` runs it as `python script.py` would; `steps.py` detects its steps; `network_calls.py` finds its networks;
`notebooks.py`, `notebook_spans.py` and `notebook_runs.py` read notebooks as scripts. `hook/` runs viaduct also in the
Python processes that the script starts.
"""
