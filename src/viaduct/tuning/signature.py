"""Signature of an operator: its kind, shapes, types and attributes, without its name in a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viaduct.json_records import Damaged, require_type
from viaduct.search_space import Value

THREADS = "threads"
"""Kind of the number of threads, which is tuned as an operator; its time is that of a complete step."""
MAX_OTHER_LOAD = 0.1
"""A machine is busy if other programs use a larger share of the processors. Thread counts are not compared on a busy
machine, where threads wait for each other and a single thread seems fastest."""
MAX_SHOWN_CHARS = 90  # of a signature in a table
USUAL_VALUES = {"stride": "1x1", "dilation": "1x1", "groups": 1, "layout": "channels_last"}
"""Tables show these fields only if their value differs."""


@dataclass(frozen=True)
class Signature:
    """A kind of operator and the fields that its time depends on."""

    kind: str
    fields: tuple[tuple[str, Value], ...]  # may include `shown`, a short form for tables

    @classmethod
    def of(cls, kind: str, **fields: Value) -> Signature:
        return cls(kind, tuple(fields.items()))

    def __getitem__(self, name: str) -> Any:
        return dict(self.fields)[name]

    @property
    def key(self) -> str:
        """The signature as text, the key of its entry in the bank."""
        return " ".join([self.kind, *(f"{name}={value}" for name, value in self.fields)])

    @property
    def shapes(self) -> str:
        """Short form of the signature for tables: its field `shown`, or the shapes of a convolution or linear layer."""
        values = dict(self.fields)
        if self.kind in ("conv2d", "linear") and {"x", "w"} <= values.keys():
            unusual = [
                f"{name} {values[name]}" for name, usual in USUAL_VALUES.items() if values.get(name, usual) != usual
            ]
            text = ", ".join([f"{values['x']} by {values['w']}", *unusual, str(values.get("compute", ""))])
        else:
            text = str(values.get("shown") or " ".join(f"{name}={value}" for name, value in values.items()))
        return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"

    def encode(self) -> dict[str, Value]:
        return {"kind": self.kind, **dict(self.fields)}

    @classmethod
    def decode_json(cls, record: Any) -> Signature:
        """Return the signature that `encode` returned as a record; raise Damaged for an invalid one."""
        if not isinstance(record, Mapping) or not isinstance(record.get("kind"), str):
            raise Damaged("a signature has no kind")
        fields = {name: value for name, value in record.items() if name != "kind"}
        for name, value in fields.items():
            require_type(value, Value, f"a signature's {name}")
        return cls(record["kind"], tuple(fields.items()))
