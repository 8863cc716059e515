"""Benchmark of a recipe's training step: its speed, its time by kind of operator, and both for peers.

A recipe is a training configuration of viaduct. Peers are the same network from torchvision or timm in a plain loop.
`measure.py` runs the benchmark: build each variant, warm it up, time the variants in turns, profile each one.
`ours.py` and `peers.py` build the variants. `counting.py` counts the floating-point operations and bytes of a step,
and `devices/ceilings.py` measures the device's peak rates. `shares.py` and `profiling/kinds.py` divide the time of a
step by kind. `record.py` builds the JSON record and `table.py` prints it. `viaduct bench` calls these;
`devices/timing.py` has the clock. `input_pipeline.py` compares input pipelines for `viaduct data bench`.
"""
