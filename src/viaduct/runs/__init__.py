"""Reading of run directories: listing, differences, lineage, a page over several runs, exports.

    listing = list_runs([Path("runs")])        # runs/listing.py: runs and problems below a folder
    diff_runs(first, second)                   # runs/differences.py
    trace_lineage(run, listing.runs)           # runs/lineage.py

Only `search/` and `watching.py` need torch. A run may belong to another process, or be half-written or damaged.
"""
