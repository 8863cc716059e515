"""Advise on TensorFlow sessions in a PyTorch file.

     import tensorflow as tf
     import torch
     session = tf.compat.v1.Session()

TensorFlow code in a PyTorch script, such as the export of a network, stays and runs on the host. The rules of
TensorFlow 1 edit only files in which TensorFlow trains.
"""

from __future__ import annotations

from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.lookups import mark_once
from viaduct.migration.rule import ALL_TARGETS, Rule, Site

rule = Rule(__name__, rows=("6",), category="advice", targets=ALL_TARGETS, visits_lines_left_alone=True, runs_last=True)

SESSIONS = ("tensorflow.Session", "tensorflow.InteractiveSession", "tensorflow.python.client.session.Session")


@rule.call(*SESSIONS)
def advise_session(site: Site) -> None:
    """Report the first session of a file to which the rules of TensorFlow do not apply."""
    if not site.file.project.uses_rules_of(TENSORFLOW, site.file.path) and mark_once(site, "beside"):
        site.advise(
            "TensorFlow in a PyTorch file: this code stays as it is and runs on the host",
            zh="PyTorch 文件中的 TensorFlow 代码:保持不变,在主机上运行",
        )
