"""Operators tuned by measurement, and the bank that stores the fastest variants.

    fingerprint.py     the device and software that measurements belong to
    bank.py            the bank: one JSON file a fingerprint; merge under a lock, atomic writes
    location.py        which bank is used: --bank, TUNE_BANK_PATH, the user's own; one is shipped with viaduct
    operators/         one file a kind of operator: its signature, its variants, how a variant is applied
    search/            how spaces of configurations (viaduct/search_space.py) are searched
    measuring.py       checks of values; times taken in turns until the ranking is significant
    worker.py          the process that measures; workers.py starts, limits and restarts it
    journal.py         measurements of an unfinished search
    decision.py        what a search does to an operator's entry in the bank: append, update or leave it
    result_file.py     tune_result_pid….json
    tuner.py           the search of one operator within its share of the budget

Importing this package does not import torch.
"""
