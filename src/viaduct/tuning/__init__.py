"""Operators tuned by measurement, and the bank that stores the fastest variants.

    fingerprint.py     the device and software that measurements belong to
    bank.py            the bank: one JSON file a fingerprint; merge under a lock, atomic writes
    location.py        which bank is used: --bank, TUNE_BANK_PATH, the user's own; one is shipped with viaduct
    operators/         one file a kind of operator: its signature, its variants, how a variant is applied
    space.py, search/  spaces of configurations and how they are searched
    measuring.py       checks of values, then times in turns until the ranking is significant
    worker.py          the process that measures; workers.py starts, limits and restarts it
    journal.py         measurements of an unfinished search
    decision.py        what happens to an operator: hit, search, append, update, reserve
    result_file.py     tune_result_pid….json
    tuner.py           the search of one operator within its share of the budget

Importing this package does not import torch.
"""
