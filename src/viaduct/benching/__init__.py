"""What a training step costs on this device, where its time goes, and what others need for the same work.

`measure.py` is the run: build, warm up, take turns, look at one profile. `ours.py` and `peers.py` make what takes
turns, `counting.py` and `devices/ceilings.py` say what a step has to do and what the device could do at best,
`shares.py` and `profiling/kinds.py` divide the time of a step; `record.py` and `table.py` are what is written and
shown. `viaduct bench` is the doorway; `devices/timing.py` has the clock.
"""
