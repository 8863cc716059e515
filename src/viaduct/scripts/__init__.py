"""Runs a user's Python script in this process, and tells when its training steps begin and end.

`runner.py` runs it as `python script.py` would; `steps.py` counts its steps; `roots.py` finds its networks. Whoever
wants to look on (dump, and later rehearse and profile) subclasses `steps.Watcher`; nothing here knows what for.
"""
