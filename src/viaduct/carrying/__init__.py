"""Proof of a port: migrate a script, rehearse the original and the migrated one, compare what they computed.

`carry.py` is the way from end to end; `sides.py` makes the migrated side, `running.py` runs both, `observed.py` reads
what they left, `agreement.py` judges, `causes.py` says where a difference comes from, `report.py` makes the page.
"""
