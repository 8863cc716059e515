"""Rows of the specification of `viaduct migrate`. Each rule names the rows that it implements (`spec_rows=`).

A row is one requirement, such as E1 (the first about Estimator), or a section, such as 2.8 (Horovod). `--only`,
`--skip` and `--explain` accept rows. The specification itself is not part of the repository.
"""

from __future__ import annotations

# First letter of a row -> (subject, number of rows): I1 to I5.
ROWS = {
    "I": ("Imports", 5),
    "D": ("Input pipeline", 11),
    "N": ("Model code", 11),
    "E": ("Estimator", 17),
    "S": ("Sessions", 13),
    "K": ("Keras", 10),
    "V": ("Distribution", 8),
    "L": ("Precision and loss scale", 7),
    "C": ("Life cycle", 6),
    "P": ("PyTorch", 27),
}
# Rows that name a section of the specification.
SECTIONS = {
    "2.11": "Preset",
    "2.8": "Horovod",
    "5": "Operators of PyTorch",
    "6": "PyTorch on the MLU",
    "6.1": "TensorFlow 1 on the MLU",
    "8": "Support of symbols",
}
# Rows that no rule implements completely -> place of the implementation, or the reason why there is none.
ELSEWHERE = {
    "I1": "names that rules introduced are imported: `migration/imports.py`",
    "I2": "`RewriterConfig` is imported like other names: `migration/imports.py`",
    "I3": "where an import is inserted: `migration/imports.py`",
    "I5": "names that would shadow another name get the prefix `npu_`: `migration/engine.py`",
    "D10": "left alone: iterators and feed dicts work as they are",
    "E9": "left alone: NPUEstimator accepts an EstimatorSpec",
    "E14": "left alone otherwise: train, evaluate, predict, their specs and hooks work as they are",
    "E17": "the start scripts that `--out` writes set these variables: `cluster/project_scripts.py`",
    "S6": "left alone in explicit style; `--style wrapper` inherits the adapter's setting",
    "V8": "left alone: each model decides how it splits its gradients",
    "C3": "with `--resources plugin`",
    "P23": "left alone: torch.accelerator is device neutral",
    "P24": "left alone: branches for the CPU and for mps keep their structure, only names in them change",
}
