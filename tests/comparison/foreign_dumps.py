"""Small dumps and graphs in the forms of other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TIME = 1607502000000000


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def to_nc1hwc0(nchw: Array) -> Array:
    n, c, h, w = nchw.shape
    padded = np.zeros((n, -(-c // 16) * 16, h, w), nchw.dtype)
    padded[:, :c] = nchw
    return padded.reshape(n, -1, 16, h, w).transpose(0, 1, 3, 4, 2).copy()


def tfdbg(folder: Path, tensors: Mapping[str, Array], time: int = TIME) -> Path:
    """`name:0` -> value, as the debugger's `pt -w` stores them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in tensors.items():
        np.save(folder / f"{name.replace('/', '_').replace(':', '.')}.{time}.npy", value)
    return folder


def npu_file(op_type: str, op: str, task: int, role: str, index: int) -> str:
    flat = op.replace("/", "_").replace(".", "_")
    return f"{op_type}.{flat}.{task}.3.{TIME + task}.{role}.{index}.npy"


@dataclass
class GeOp:
    """An operator of the compiled graph and what it left in the dump."""

    name: str
    type: str
    inputs: Sequence[str] = ()
    originals: Sequence[str] | None = None
    outputs: Sequence[Mapping[str, Any]] = ()  # layout, shape, origin, index, format, origin_shape
    multi: bool = False
    l1: str = ""
    dump: Mapping[str, Array] = field(default_factory=dict)  # "output:0" -> value


def npu(root: Path, ops: Sequence[GeOp], step: int = 0) -> Path:
    """The whole directory tree; returns its top."""
    folder = root / "20201209083219" / "0" / "ge_default_20201209083353_71" / "1" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    for task, op in enumerate(ops):
        for slot, value in op.dump.items():
            role, index = slot.split(":")
            np.save(folder / npu_file(op.type, op.name, task, role, int(index)), value)
    return root


def as_json(ops: Sequence[GeOp]) -> dict[str, Any]:
    return {
        "name": "ge_default",
        "graph": [{"name": "ge_default", "op": [_json_op(n, op) for n, op in enumerate(ops)]}],
    }


def _json_op(number: int, op: GeOp) -> dict[str, Any]:
    attributes: list[dict[str, Any]] = [{"key": "stream_label", "value": {"s": "x"}}]
    if op.originals is not None:
        held: dict[str, Any] = {"val_type": 1} | ({"s": list(op.originals)} if op.originals else {})
        attributes.append({"key": "_datadump_original_op_names", "value": {"list": held}})
    attributes += [{"key": "_datadump_is_multiop", "value": {"b": True}}] if op.multi else []
    attributes += [{"key": "_L1_fusion_sub_graph_no", "value": {"s": op.l1}}] if op.l1 else []
    outputs = [_json_output(output) for output in op.outputs]
    return {
        "name": op.name, "type": op.type, "id": number, "input": list(op.inputs), "attr": attributes,
        "output_desc": outputs, "has_out_attr": True,
    }  # fmt: skip


def _json_output(output: Mapping[str, Any]) -> dict[str, Any]:
    attributes: list[dict[str, Any]] = []
    for key, option, kind in [
        ("origin", "_datadump_origin_name", "s"),
        ("index", "_datadump_origin_output_index", "i"),
        ("format", "_datadump_origin_format", "s"),
    ]:
        attributes += [{"key": option, "value": {kind: output[key]}}] if key in output else []
    if "origin_shape" in output:
        held = {"val_type": 2, "i": list(output["origin_shape"])}
        attributes.append({"key": "origin_shape", "value": {"list": held}})
    return {
        "dtype": "DT_FLOAT", "layout": output.get("layout", "ND"), "attr": attributes,
        "shape": {"dim": list(output.get("shape", ()))},
    }  # fmt: skip


def as_text(ops: Sequence[GeOp]) -> str:
    """The protobuf text form of the same content, with things in it that nobody here needs."""
    return '# made by GE\nversion: 1\nunknown { deep { deeper: "}" } list: [1, 2] }\n' + _message(as_json(ops), 0)


def _message(tree: Mapping[str, Any], depth: int) -> str:
    fields = [(key, value if isinstance(value, list) else [value]) for key, value in tree.items()]
    return "".join(_field(key, item, depth) for key, items in fields for item in items)


def _field(key: str, value: Any, depth: int) -> str:
    blank = "  " * depth
    if isinstance(value, dict):
        return f"{blank}{key} {{\n{_message(value, depth + 1)}{blank}}}\n"
    if key == "val_type":
        value = "VT_LIST_STRING" if value == 1 else "VT_LIST_INT"
    elif key == "dtype" or isinstance(value, bool):
        value = str(value).replace("True", "true")
    elif isinstance(value, str):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{blank}{key}: {value}\n"


def tensor_entry(value: Array, name: str | None) -> dict[str, Any]:
    entry = {
        "type": "torch.Tensor", "dtype": f"torch.{value.dtype}", "shape": list(value.shape), "requires_grad": False,
        "Max": float(value.max()), "Min": float(value.min()), "Mean": float(value.mean()),
        "Norm": float(np.linalg.norm(value)),
    }  # fmt: skip
    return entry if name is None else entry | {"data_name": name}


def msprobe(folder: Path, data: Mapping[str, Any], construct: Mapping[str, Any] | None = None) -> Path:
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    record = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": "/elsewhere", "data": data}
    (folder / "dump.json").write_text(json.dumps(record))
    (folder / "stack.json").write_text("{}")
    if construct is not None:
        (folder / "construct.json").write_text(json.dumps(construct))
    return folder


def fused_network(seed: int = 0) -> tuple[list[GeOp], dict[str, Array]]:
    """conv+bn+relu fused behind a TransData, a Cast, a renamed operator, a split one, and a dense layer fused with
    its bias; with the original's tensors, which the accelerator's equal."""
    image, relu = numbers(2, 8, 8, 3, seed=seed), np.abs(numbers(2, 6, 8, 8, seed=seed + 1))
    pooled, left_half, right_half = (
        numbers(2, 20, seed=seed + 2),
        numbers(2, 4, seed=seed + 3),
        numbers(2, 6, seed=seed + 4),
    )
    logits = numbers(2, 10, seed=seed + 5)
    blocked, relu_nhwc = to_nc1hwc0(relu), relu.transpose(0, 2, 3, 1).copy()
    nhwc = {"layout": "NHWC", "format": "NHWC"}
    ops = [
        GeOp("IteratorV2", "FrameworkOp", originals=["IteratorV2"], outputs=[{**nhwc, "origin": "IteratorV2"}],
             dump={"output:0": image}),
        GeOp("trans_TransData_1", "TransData", ["IteratorV2:0", "ctrl:-1"], originals=[],
             outputs=[{"layout": "NC1HWC0", "format": "NHWC"}],
             dump={"input:0": image, "output:0": to_nc1hwc0(image.transpose(0, 3, 1, 2))}),
        GeOp("conv1/Conv2Dconv1/bnconv1/relu", "Conv2D", ["trans_TransData_1:0", "weight:0"],
             originals=["conv1/Conv2D", "conv1/bn", "conv1/relu"],
             outputs=[{"layout": "NC1HWC0", "origin": "conv1/relu", "index": 0, "format": "NHWC",
                       "origin_shape": relu_nhwc.shape}],
             dump={"input:0": to_nc1hwc0(image.transpose(0, 3, 1, 2)), "output:0": blocked}),
        GeOp("Cast_7", "Cast", ["conv1/Conv2Dconv1/bnconv1/relu:0"], originals=[],
             outputs=[{"layout": "NC1HWC0", "format": "NHWC"}],
             dump={"input:0": blocked, "output:0": blocked.astype(np.float16)}),
        GeOp("pool/PartialMean", "ReduceMeanD", ["Cast_7:0"], originals=["pool/Mean"], outputs=[{"layout": "ND"}],
             dump={"input:0": blocked.astype(np.float16), "output:0": pooled}),
        GeOp("split_part1", "SplitD", ["pool/PartialMean:0"], originals=["split"], multi=True,
             outputs=[{"origin": "split", "index": 0}], dump={"input:0": pooled, "output:0": left_half}),
        GeOp("split_inner", "SplitD", ["split_part1:0"], originals=["split"], multi=True, outputs=[{}],
             dump={"output:0": left_half}),
        GeOp("split_part2", "SplitD", ["split_inner:0"], originals=["split"], multi=True,
             outputs=[{"origin": "split", "index": 1}], dump={"output:0": right_half}),
        GeOp("dense/MatMul", "MatMulV2", ["split_part2:0"], originals=["dense/bias", "dense/MatMul", "dense/BiasAdd"],
             outputs=[{"origin": "dense/BiasAdd", "index": 0}], dump={"input:0": right_half, "output:0": logits}),
        GeOp("AtomicAddrClean_1", "AtomicAddrClean", originals=[], outputs=[{}], dump={"output:0": numbers(4)}),
        GeOp("Softmax", "SoftmaxV2", ["dense/MatMul:0"], outputs=[{}],
             dump={"input:0": logits, "output:0": np.exp(logits)}),
    ]  # fmt: skip
    truth = {
        "IteratorV2:0": image, "conv1/Conv2D:0": numbers(2, 8, 8, 6, seed=90),
        "conv1/bn:0": numbers(2, 8, 8, 6, seed=91),
        "conv1/relu:0": relu_nhwc, "pool/Mean:0": pooled, "split:0": left_half, "split:1": right_half,
        "dense/MatMul:0": numbers(2, 10, seed=92), "dense/BiasAdd:0": logits, "Softmax:0": np.exp(logits),
    }  # fmt: skip
    return ops, truth
