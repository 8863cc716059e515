"""From a script to a proof: migrate it, rehearse the original and the migrated one, compare what they computed.

`carry.py` is the way from end to end; `migrated.py` makes the new side, `running.py` runs both, `observed.py` reads
what they left, `agreement.py` judges, `causes.py` says where a difference comes from, `report.py` makes the page.
"""
