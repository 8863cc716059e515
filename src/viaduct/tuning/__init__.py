"""Tune operators by measurement, and store the fastest variants in a bank.

    signature.py       signature of an operator: its kind, shapes, types and attributes
    fingerprint.py     device and software of a measurement
    bank.py            the bank: one JSON file for each fingerprint; merge under a lock, atomic writes
    location.py        location of the bank: --bank, TUNE_BANK_PATH, the user's default
    operators/         one file for each kind of operator: signature, variants, application of a variant
    search/            search methods over spaces of configurations (viaduct/search_space.py)
    measuring.py       checks of values; times taken in turns until the ranking is significant
    worker_process.py  start, limit and restart the measuring process, which runs request_server.py
    journal.py         measurements of an unfinished search
    result_file.py     append, update or keep an operator's entry in the bank; tune_result_pid….json
    tuner.py           the search of one operator within a time limit
    applying.py        use the stored variants in a network and its optimizer
    table.py           tables and JSON of a bank and of a tuning run

Importing this package does not import torch.
"""
