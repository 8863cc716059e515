"""Run directories, read and compared: listing, differences, lineage, a page over several runs, exports.

    listing = list_runs([Path("runs")])        # runs/listing.py: every run below a folder, and what is not one and why
    diff_runs(first, second)                   # runs/differences.py
    trace_lineage(run, listing.runs)           # runs/lineage.py

All of it reads files only and needs no torch, but for `search/` and `watching.py`. A run may belong to another process,
or be half-written or damaged.
"""
