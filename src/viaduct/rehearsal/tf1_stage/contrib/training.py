"""tf.contrib.training: hyperparameters, and the training loop around a monitored session."""

from __future__ import annotations

import json
import re
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training.evaluation import _get_or_create_eval_step as get_or_create_eval_step  # noqa: F401


class HParams:
    """Named hyperparameters, stored as attributes; hparam_def and model_structure have no effect."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        self._names: dict[str, None] = {}
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter; raise ValueError if the name is in use."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        setattr(self, name, value)
        self._names[name] = None

    def set_hparam(self, name: str, value: Any) -> None:
        """Set an existing hyperparameter."""
        if name not in self._names:
            raise KeyError(f"there is no hyperparameter {name!r}")
        setattr(self, name, value)

    def override_from_dict(self, values: dict[str, Any]) -> HParams:
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse(self, text: str) -> HParams:
        """Set hyperparameters from text such as `rate=0.5,layers=[3,4]`; each value keeps the type of the old one."""
        for name, value in split_assignments(text):
            old = getattr(self, name) if name in self._names else None
            self.set_hparam(name, convert_value(value, old))
        return self

    def parse_json(self, text: str) -> HParams:
        return self.override_from_dict(json.loads(text))

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key) if key in self._names else default

    def to_json(self, **kwargs: Any) -> str:
        return json.dumps(self.values(), **kwargs)

    def __contains__(self, key: str) -> bool:
        return key in self._names


def split_assignments(text: str) -> list[tuple[str, str]]:
    """Return (name, value) pairs of `name=value,name=[1,2]`, split at the commas outside of brackets."""
    parts = re.split(r",(?![^\[\]]*\])", text)
    pairs = [part.partition("=") for part in parts if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def convert_value(text: str, old: Any) -> Any:
    """Convert text to the type of the old value; `[…]` becomes a list with the type of the old list's first element."""
    if text.startswith("["):
        first = old[0] if isinstance(old, list) and old else None
        return [convert_value(part.strip(), first) for part in text[1:-1].split(",")]
    if isinstance(old, bool):
        return text.lower() in ("true", "1")
    return type(old)(text) if isinstance(old, (int, float, str)) else text


def train(
    train_op: Any,
    logdir: str | None,
    master: str = "",
    is_chief: bool = True,
    scaffold: Any = None,
    hooks: Any = None,
    chief_only_hooks: Any = None,
    save_checkpoint_secs: int | None = 600,
    save_summaries_steps: int | None = 100,
    config: Any = None,
    max_wait_secs: int = 7200,
    run_metadata: Any = None,
) -> Any:
    """Run the training operator until a hook stops it, and return its last value; max_wait_secs has no effect."""
    result = None
    with tf.train.MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
    ) as session:
        while not session.should_stop():
            result = session.run(train_op, run_metadata=run_metadata)
    return result
