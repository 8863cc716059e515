"""tf.contrib.training: hyper parameters, and the training loop around a monitored session."""

from __future__ import annotations

import json
from typing import Any

import tensorflow.compat.v1 as tf


class HParams:
    """Named values, as attributes."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        self._names: dict[str, None] = {}
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter; a name that is taken is refused."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        setattr(self, name, value)
        self._names[name] = None

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a hyperparameter that exists."""
        if name not in self._names:
            raise KeyError(f"there is no hyperparameter {name!r}")
        setattr(self, name, value)

    def override_from_dict(self, values: dict[str, Any]) -> HParams:
        """Set several hyperparameters."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse(self, text: str) -> HParams:
        """`name=value,name=[1,2]`; a value takes the kind of the one before it."""
        for name, value in split_assignments(text):
            old = getattr(self, name) if name in self._names else None
            self.set_hparam(name, convert_value(value, old))
        return self

    def parse_json(self, text: str) -> HParams:
        """Set the hyperparameters that a JSON text gives."""
        return self.override_from_dict(json.loads(text))

    def values(self) -> dict[str, Any]:
        """Return the hyperparameters as a dict."""
        return {name: getattr(self, name) for name in self._names}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a hyperparameter, or the default."""
        return getattr(self, key) if key in self._names else default

    def to_json(self, **kwargs: Any) -> str:
        """Return the hyperparameters as JSON."""
        return json.dumps(self.values(), **kwargs)

    def __contains__(self, key: str) -> bool:
        return key in self._names


def split_assignments(text: str) -> list[tuple[str, str]]:
    """At commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text + ","):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    pairs = [part.partition("=") for part in parts if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def convert_value(text: str, old: Any) -> Any:
    """Convert a text to the type of the old value."""
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
    """Runs the training operator until a hook stops it; its last value."""
    last = None
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
            last = session.run(train_op, run_metadata=run_metadata)
    return last


def get_or_create_eval_step() -> Any:
    from tensorflow.python.training.evaluation import _get_or_create_eval_step

    return _get_or_create_eval_step()
