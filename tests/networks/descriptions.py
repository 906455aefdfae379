"""Descriptions of networks and actions, as the tests need them."""

from typing import Any

from es.model import with_shapes


def discrete(n: int, start: int = 0) -> dict[str, Any]:
    return {"kind": "discrete", "n": n, "start": start}


def box(low: list[float], high: list[float], **changes: Any) -> dict[str, Any]:
    return {
        "kind": "box", "low": low, "high": high, "shape": [len(low)], "dtype": "float32",
        "bins": None, "noise": 0.0, "squash": "tanh", **changes,
    }  # fmt: skip


def mlp(inputs: int = 4, actions: int = 2, **changes: Any) -> dict[str, Any]:
    return with_shapes({
        "kind": "mlp", "inputs": inputs, "hidden": [64, 64], "activation": "selu",
        "normalize": False, "obs_clip": 5.0, "actions": discrete(actions), **changes,
    })  # fmt: skip


def convlstm(actions: int = 6, *, vbn: bool = False) -> dict[str, Any]:
    network = {"kind": "convlstm", "inputs": 1, "vbn": vbn, "actions": discrete(actions)}
    return with_shapes(network)
