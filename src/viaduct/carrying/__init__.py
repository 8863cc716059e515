"""Proof of a port: migrate a script, run the original and the migrated version on the CPU, and compare their results.

`carry.py` calls the other modules: `sides.py` makes the migrated side, `running.py` runs both (on a stand-in for the
device: a rehearsal), `observations.py` reads what the runs recorded, `agreement.py` judges, `causes.py` explains a
difference, `report.py` makes the page.
"""
