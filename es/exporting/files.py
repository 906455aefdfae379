"""A policy's file: ONNX, or torch's own .pt2."""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.export import ExportedProgram

from es.exporting.policy import ExportedPolicy

METADATA = "policy"  # the key of the ONNX file's metadata, and of the .pt2 file's extra file


def example(space: spaces.Space) -> Any:
    """Return an observation of a space: tensors in a dict or a tuple, or one tensor."""
    if isinstance(space, spaces.Dict):
        return {key: example(part) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(example, space))
    return torch.from_numpy(np.array(space.sample()))


def inputs(observation: Any, name: str = "observation") -> dict[str, torch.Tensor]:
    """Return an observation's tensors by name; those of parts are `observation.KEY`."""
    if isinstance(observation, torch.Tensor):
        return {name: observation}
    parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
    found: dict[str, torch.Tensor] = {}
    for key, part in parts:
        found |= inputs(part, f"{name}.{key}")
    return found


def describe(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """Return types and shapes as plain values, by the same names."""
    return {
        name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        for name, tensor in tensors.items()
    }


def trace(policy: ExportedPolicy, observation: Any) -> ExportedProgram:
    """Return the policy as a graph of operations. observation: an example."""
    state = [policy.initial_state] if policy.initial_state.numel() else []
    with _quiet():
        program = torch.export.export(policy, (observation, *state))
    for node in program.graph.nodes:  # the paths of this machine's files
        node.meta.pop("stack_trace", None)
    return program


def to_pt2(program: ExportedProgram, metadata: Mapping[str, Any]) -> bytes:
    """Return the content of a .pt2 file, with the metadata as its extra file."""
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file, extra_files={METADATA: json.dumps(metadata)})
    return file.getvalue()


def to_onnx(program: ExportedProgram, metadata: Mapping[str, Any]) -> bytes:
    """Return the content of an ONNX file, whose inputs are those that the metadata describe."""
    names = list(metadata["inputs"])
    with _quiet():
        onnx = torch.onnx.export(
            program,
            input_names=names,
            output_names=["action", "next_state"][: 1 + ("state" in names)],
            verbose=False,
        )
    assert onnx is not None
    model = onnx.model_proto
    graph = model.graph
    for each in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        each.ClearField("metadata_props")  # where in the source it comes from
    graph.ClearField("value_info")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(metadata)
    return model.SerializeToString()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from telling of libraries that nothing here needs."""
    logging.disable()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
