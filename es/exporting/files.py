"""A policy's file: ONNX, or torch's own .pt2."""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch.export import ExportedProgram

from es.exporting.policy import ExportedPolicy

METADATA = "policy"  # the key of the ONNX file's metadata, and of the .pt2 file's extra file

# Called with an observation and a state (empty if nothing is remembered), as tensors; returns the
# action and the next state.
Play = Callable[[Any, torch.Tensor], tuple[np.ndarray, torch.Tensor]]


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


class Pt2File:
    """A .pt2 file of a program. names: of its inputs, which only ONNX has."""

    def __init__(self, program: ExportedProgram, names: Sequence[str]) -> None:
        self._program = program

    def content(self, metadata: Mapping[str, Any]) -> bytes:
        """Return the bytes of the file, with the metadata as its extra file."""
        file = io.BytesIO()
        with _quiet():
            torch.export.save(self._program, file, extra_files={METADATA: json.dumps(metadata)})
        return file.getvalue()

    def load(self) -> Play:
        """Return what plays the file."""
        with _quiet():
            return _play(torch.export.load(io.BytesIO(self.content({}))))


class OnnxFile:
    """An ONNX file of a program. names: of its inputs."""

    def __init__(self, program: ExportedProgram, names: Sequence[str]) -> None:
        self._program, self._has_state = program, "state" in names
        with _quiet():
            # The optimiser takes a constant as small as 1e-8 for zero, and leaves it out of sums.
            onnx = torch.onnx.export(
                program,
                input_names=names,
                output_names=["action", "next_state"][: 1 + self._has_state],
                optimize=False,
                verbose=False,
            )
        assert onnx is not None
        self._model = onnx.model_proto
        graph = self._model.graph
        for each in (*graph.node, *graph.input, *graph.output, *graph.initializer):
            each.ClearField("metadata_props")  # where in the source it comes from
        graph.ClearField("value_info")

    def content(self, metadata: Mapping[str, Any]) -> bytes:
        """Return the bytes of the file."""
        self._model.ClearField("metadata_props")
        entry = self._model.metadata_props.add()
        entry.key, entry.value = METADATA, json.dumps(metadata)
        return self._model.SerializeToString()

    def load(self) -> Play:
        """Return what plays the file: onnxruntime, or without that the program it is made of."""
        if importlib.util.find_spec("onnxruntime") is None:
            return _play(self._program)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4  # errors are raised
        session = onnxruntime.InferenceSession(self.content({}), options)

        def play(observation: Any, state: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
            given = inputs(observation) | ({"state": state} if self._has_state else {})
            found = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
            return found[0], torch.from_numpy(found[1]) if self._has_state else state

        return play


def _play(program: ExportedProgram) -> Play:
    module = program.module()

    def play(observation: Any, state: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
        with torch.no_grad():
            if not state.numel():
                return module(observation).numpy(), state
            action, after = module(observation, state)
        return action.numpy(), after

    return play


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from telling of libraries that nothing here needs."""
    logging.disable()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
