"""Proof of a port: migrate a script, rehearse the original and the migrated version, and compare their results.

`carry.py` calls the other modules: `sides.py` makes the migrated side, `running.py` runs both, `observations.py` reads
records, `agreement.py` judges, `causes.py` explains a difference, `report.py` makes the page.
"""
