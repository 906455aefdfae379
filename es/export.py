"""Write a policy as an ONNX file, which needs nothing of this program."""

import dataclasses
import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from es import __version__
from es.algorithm.noise import DoubleArray
from es.checkpoint import Checkpoint, replace, require_writable, writable
from es.config import Config
from es.environments.images import ALPHA, ImageObservation
from es.environments.spaces import as_network_sees
from es.envs import Preprocessor, make_bare_env
from es.errors import UsageError, as_usage_error, counted, how_to_install
from es.networks import clip_of
from es.networks.actors import bounds_within
from es.networks.custom import with_state
from es.policy import Policy, make_policy
from es.reports.console import Console

METADATA = "policy"  # the key of the file's metadata
STEPS = 200  # in which the file's actions are compared with the policy's
TIES = 0.01  # the share of steps that may differ, since sums in another order round differently
TOLERANCE = 0.001  # of the range of a continuous action, for the same reason

Play = Callable[[Any, Any], list[Any]]  # from an observation and a state to the file's outputs


def export(config: Config, checkpoint: Checkpoint | None) -> None:
    """Write the policy of --restore to the file of --export.

    Raise UsageError if it cannot be written, if the network cannot be exported, or if the file does
    not play as the policy does.
    """
    path = Path(config.export or "")
    require_writable(path, "--export")
    if not (importlib.util.find_spec("onnxscript") and importlib.util.find_spec("onnxruntime")):
        remedy = how_to_install("export", "requirements-extra.txt")
        raise UsageError(f"--export {path}: needs onnxscript and onnxruntime: {remedy}")
    assert checkpoint is not None
    # A file draws no actions: it plays the likeliest, and these are scored.
    policy = make_policy(dataclasses.replace(config, greedy=config.sample_actions), checkpoint)
    environment, actions = policy.environment, policy.network["actions"]
    with closing(make_bare_env(environment)) as bare:
        with as_usage_error(f"--export {path}: the network cannot be exported"):
            clip = clip_of(policy.network) if policy.normalizer else math.inf
            keeps_shape = environment["keeps_shape"]
            view = View(bare, policy.statistics, clip, keeps_shape=keeps_shape)
            observation = as_tensors(bare.observation_space.sample())
            module = ExportedPolicy(view, policy.module(), ActionDecoder(actions), observation)
            model = to_onnx(module, observation)
            named = inputs(observation, module.initial_state)
        with as_usage_error(f"--export {path}: cannot be compared with the policy"):
            play = player(model, named)
            different = count_differences(policy, bare, play, module.initial_state)
    if different > TIES * STEPS:
        raise UsageError(
            f"--export {path}: its actions are not those of the policy in {different} of {STEPS} "
            "steps, so nothing is written"
        )
    console, episodes = Console(silent=config.silent), counted(config.eval_episodes, "episode")
    console.say(f"Playing {episodes} for the score of {path} ...")
    mean, std = policy.evaluate()
    greedy = config.sample_actions and "sample" in actions
    metadata = {
        "env_id": environment["id"],
        "env_kwargs": environment["kwargs"],
        "env_wrappers": environment["wrappers"],
        "frame_skip": environment["frame_skip"],
        "noop_max": environment["noop_max"],
        "fire_reset": environment["fire_reset"],
        "max_episode_length": policy.recipe.cap(config.max_episode_length),
        "inputs": {
            name: {"dtype": str(each.numpy().dtype), "shape": list(each.shape)}
            for name, each in named.items()
        },
        "initial_state": module.initial_state.tolist(),
        "greedy": greedy,
        "update": checkpoint.counters.update,
        "frames": checkpoint.counters.frames,
        "made_by": f"evolution-strategies {__version__}",
        "score": {"mean": mean, "std": std, "episodes": config.eval_episodes},
    }
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(metadata)
    with writable(path, "--export"):
        replace(path, model.SerializeToString())
    likeliest = ", the likeliest actions" if greedy else ""
    console.say(f"Exported {path}: mean {mean:.2f}, standard deviation {std:.2f}{likeliest}")


def count_differences(
    policy: Policy, bare: gymnasium.Env, play: Play, initial_state: Tensor
) -> int:
    """Play the policy; return in how many of STEPS steps the file would act differently.

    bare: the environment as `es.envs.make_bare_env` makes it. play: from `player`.
    """
    actor, preprocess = policy.actor(), Preprocessor(bare, policy.environment)
    tolerance: Any = 0
    actions = policy.network["actions"]
    if actions["kind"] == "box":
        spans = np.subtract(actions["high"], actions["low"])
        tolerance = TOLERANCE * spans.reshape(actions["shape"])
    different, over = 0, True
    for step in range(STEPS):
        if over:
            observation, _ = bare.reset(seed=step)
            actor.reset(step)
            preprocess.reset()
            state: Any = initial_state
        action, *after = play(observation, state)
        state = after[0] if after else state
        expected = actor.act(preprocess(observation))
        # NaN is no action of the policy.
        different += not (abs(action.astype(float) - expected) <= tolerance).all()
        observation, _, terminated, truncated, _ = bare.step(expected)
        over = terminated or truncated
    return different


# ---- the policy as one module ----


class ExportedPolicy(nn.Module):
    """Choose actions for an environment's observations, with all memory in one vector.

    view: a `View`. network: called with what the view shows and a state, which is a
    tensor or a tuple of tensors, float32, and None at first; returns outputs, or outputs and the
    next state. decoder: makes actions from outputs. observation: an example. initial_state: (S,)
    float32 zeros, S = 0 if nothing is remembered. Raise ValueError if the network's state is of
    another kind, changes its shapes, or if zeros do not mean the same to it as None.
    """

    def __init__(
        self, view: nn.Module, network: nn.Module, decoder: nn.Module, observation: Any
    ) -> None:
        super().__init__()
        self._view, self._network, self._decoder = view, network, decoder
        self.eval().requires_grad_(requires_grad=False)
        shown, averages = view(observation, view.initial)
        outputs, memory = with_state(network(shown, None))
        self._is_tuple = isinstance(memory, tuple)
        parts = _parts(memory)
        if any(not isinstance(part, Tensor) or part.dtype != torch.float32 for part in parts):
            raise ValueError("its state must be a float32 tensor or a tuple of them")
        self._shapes = [part.shape for part in (averages, *parts)]
        self.initial_state = torch.zeros(sum(shape.numel() for shape in self._shapes))
        if parts:
            _, zeros = self._unpack(self.initial_state)
            again, after = with_state(network(shown, zeros))
            if [part.shape for part in _parts(after)] != self._shapes[1:]:
                raise ValueError("its state has another shape after each step")
            if not torch.allclose(outputs, again, equal_nan=True):
                raise ValueError("it must treat a state of zeros as it treats None")

    def forward(self, observation: Any, state: Tensor | None = None) -> Any:
        """Return the action, and the next state if there is one."""
        averages, memory = self._view.initial, None
        if state is not None:
            averages, memory = self._unpack(state)
        shown, averages = self._view(observation, averages)
        outputs, memory = with_state(self._network(shown, memory))
        action = self._decoder(outputs)
        if state is None:
            return action
        return action, torch.cat([part.reshape(-1) for part in (averages, *_parts(memory))])

    def _unpack(self, state: Tensor) -> Any:
        """Return the view's and the network's state."""
        split = state.split([shape.numel() for shape in self._shapes])
        averages, *parts = map(Tensor.reshape, split, self._shapes)
        return averages, tuple(parts) if self._is_tuple else [*parts, None][0]


def _parts(memory: Any) -> tuple[Any, ...]:
    if isinstance(memory, tuple):
        return memory
    return () if memory is None else (memory,)


class ActionDecoder(nn.Module):
    """Make the described action of a network's outputs, as `es.networks.actors` does.

    Where actions are drawn (--sample-actions), make the likeliest one; add no noise.
    """

    def __init__(self, actions: Mapping[str, Any]) -> None:
        super().__init__()
        self._kind = kind = actions["kind"]
        self._shape = actions.get("shape", ())
        named = {"multi-binary": "int8", "discrete": "int64"}.get(kind) or actions["dtype"]
        self._dtype: torch.dtype = torch.from_numpy(np.empty(0, named)).dtype
        self._bins, self._squash = actions.get("bins"), actions.get("squash")
        if kind == "box":
            low, high = bounds_within(actions)
            self._low, self._high = torch.from_numpy(low), torch.from_numpy(high)
            if self._bins:  # (dimensions, bins)
                values = np.linspace(low, high, self._bins, dtype=np.float32, axis=1)
                self._values = torch.from_numpy(values)
        elif kind != "multi-binary":
            self._counts = [actions["n"]] if kind == "discrete" else actions["counts"]
            self._start = torch.tensor(actions["start"]).reshape(-1)

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the action as the environment takes it. outputs: (outputs,) float32."""
        return self._numbers(outputs).reshape(self._shape).to(self._dtype)

    def _numbers(self, outputs: Tensor) -> Tensor:
        if self._kind == "multi-binary":
            return outputs > 0
        if self._kind != "box":
            choices = [part.argmax() for part in outputs.split(self._counts)]
            return torch.stack(choices) + self._start
        if self._bins:
            largest = outputs.reshape(-1, self._bins).argmax(dim=1, keepdim=True)
            numbers = self._values.gather(1, largest)
        elif self._squash == "clip":
            numbers = torch.clamp(outputs, self._low, self._high)
        else:
            share = (outputs.tanh() + 1) * 0.5
            numbers = torch.clamp(
                self._low + share * (self._high - self._low), self._low, self._high
            )
        return numbers if self._dtype.is_floating_point else numbers.round()


class View(nn.Module):
    """Show an observation, as tensors in the shape of its space, as the network sees it.

    bare: the environment as `es.envs.make_bare_env` makes it. statistics: (2, inputs), means and
    1 / standard deviation, if observations are normalised. clip: their limit, in standard
    deviations. keeps_shape: as for `as_network_sees`. initial: the first state. For images: (3,),
    running averages of their mean, their standard deviation and 1; divided by the last, the others
    are free of the bias of their start at 0. Otherwise: (0,). Tests compare this with
    `es.envs.Preprocessor`.
    """

    def __init__(
        self,
        bare: gymnasium.Env,
        statistics: DoubleArray | None = None,
        clip: float = math.inf,
        *,
        keeps_shape: bool = False,
    ) -> None:
        super().__init__()
        self._space = bare.observation_space
        seen = as_network_sees(bare, "", keeps_shape=keeps_shape)
        self._shape = seen.observation_space.shape
        self._statistics = None if statistics is None else torch.tensor(statistics)
        self._clip = clip
        self._image = seen if isinstance(seen, ImageObservation) else None
        self.initial = torch.zeros(3 if self._image else 0)
        if self._image:
            self._rows, self._columns = map(torch.tensor, (self._image.rows, self._image.columns))

    def forward(self, observation: Any, state: Tensor) -> tuple[Any, Tensor]:
        """Return what the network sees, float32, and the next state."""
        if self._image:
            return self._normalize_image(self._image, observation, state)
        if self._shape is None:  # a Dict that is handed through
            return _as_floats(observation), state
        dtype = torch.float32 if self._statistics is None else torch.float64
        numbers = torch.cat(_vectors(self._space, observation, dtype))
        if self._statistics is not None:
            mean, factor = self._statistics
            numbers = ((numbers - mean) * factor).clamp(-self._clip, self._clip).float()
        return numbers.reshape(self._shape), state

    def _normalize_image(
        self, wrapper: ImageObservation, observation: Any, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do as the wrapper; return the image, (1, 42, 42), and the new averages."""
        if isinstance(observation, dict):  # of one entry
            (observation,) = observation.values()
        gray = observation.float()
        if wrapper.channel_axis is not None:
            gray = gray.mean(dim=wrapper.channel_axis)
        image = self._rows @ (gray[wrapper.crop] / float(wrapper.high)) @ self._columns.T
        numbers = image.double()
        mean = numbers.mean()
        std = ((numbers - mean) ** 2).mean().sqrt()
        new = torch.stack([mean, std, torch.ones_like(mean)])
        averages = ALPHA * state.double() + (1 - ALPHA) * new
        centre, spread = averages[0] / averages[2], averages[1] / averages[2] + 1e-8
        return ((image - centre.float()) / spread.float())[None], averages.float()


def _as_floats(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _as_floats(part) for key, part in observation.items()}
    return observation.float()


def _vectors(space: spaces.Space, observation: Any, dtype: torch.dtype) -> list[Tensor]:
    """Return the vectors that make up an observation; discrete parts become one-hot."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        return [each for key, part in parts for each in _vectors(part, observation[key], dtype)]
    if isinstance(space, spaces.Discrete):
        choices, counts = observation - int(space.start), [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        choices, counts = observation - torch.tensor(space.start), space.nvec.reshape(-1).tolist()
    else:
        return [observation.reshape(-1).to(dtype)]
    return [
        functional.one_hot(choice.long(), count).to(dtype)
        for choice, count in zip(choices.reshape(-1).unbind(), counts, strict=True)
    ]


# ---- the file ----


def as_tensors(observation: Any) -> Any:
    """Return an observation, which may be a dict or a tuple, as tensors."""
    if isinstance(observation, dict):
        return {key: as_tensors(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(as_tensors, observation))
    return torch.from_numpy(np.array(observation))


def inputs(observation: Any, state: Tensor) -> dict[str, Any]:
    """Return the file's inputs by name: parts of an observation are `observation.KEY`."""
    return _named("observation", observation) | ({"state": state} if state.numel() else {})


def _named(name: str, observation: Any) -> dict[str, Any]:
    if not isinstance(observation, dict | tuple):
        return {name: observation}
    parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
    found: dict[str, Any] = {}
    for key, part in parts:
        found |= _named(f"{name}.{key}", part)
    return found


def to_onnx(module: ExportedPolicy, observation: Any) -> Any:
    """Return an ONNX model, without paths of this machine. observation: an example."""
    state = [module.initial_state] if module.initial_state.numel() else []
    logging.disable()  # torch logs messages about libraries that nothing here needs
    try:
        with warnings.catch_warnings(action="ignore"):
            # The optimiser takes a constant as small as 1e-8 for zero, and leaves it out of sums.
            program = torch.onnx.export(
                torch.export.export(module, (observation, *state)),
                input_names=[*inputs(observation, module.initial_state)],
                output_names=["action", "next_state"][: 1 + len(state)],
                optimize=False,
                verbose=False,
            )
    finally:
        logging.disable(logging.NOTSET)
    assert program is not None
    model = program.model_proto
    model.ClearField("metadata_props")
    graph = model.graph
    for each in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        each.ClearField("metadata_props")  # where in the source it comes from
    graph.ClearField("value_info")
    return model


def player(model: Any, example: Mapping[str, Tensor]) -> Play:
    """Return what plays an ONNX model by onnxruntime. example: of its `inputs`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4  # errors are raised
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    dtypes = {name: each.numpy().dtype for name, each in example.items()}

    def play(observation: Any, state: Any) -> list[Any]:
        given = {**_named("observation", observation), "state": state}
        return session.run(
            None, {name: np.asarray(given[name], dtype) for name, dtype in dtypes.items()}
        )

    return play
