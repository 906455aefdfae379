"""Write a policy as an ONNX file, which needs nothing of this program."""

import dataclasses
import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from es import __version__
from es.algorithm.noise import DoubleArray, FloatArray
from es.checkpoint import Checkpoint, replace, require_writable, writable
from es.config import Config
from es.environments.images import ALPHA, ImageObservation
from es.environments.spaces import as_network_sees
from es.envs import Preprocessor, make_bare_env, make_env
from es.errors import Interrupted, Interrupts, UsageError, as_usage_error, counted, how_to_install
from es.networks import clip_of
from es.networks.actors import rounded_inwards
from es.networks.custom import with_state
from es.policy import Policy, make_policy

METADATA = "policy"  # the key of the file's metadata
TOLERANCE = 0.01  # of the range of a continuous action, since sums are rounded in another order
TIES = 0.01  # the share of steps in which that rounding may choose another action

# Called with an observation and a state, as tensors; returns the action and the next state.
Play = Callable[[Any, Tensor], tuple[np.ndarray, Tensor]]


def export(config: Config, checkpoint: Checkpoint | None, interrupts: Interrupts) -> int:
    """Write the policy of --restore to the file of --export; return the exit status.

    Raise UsageError if it cannot be written, if the network cannot be exported, or if the file does
    not play as the policy does.
    """
    path = Path(config.export or "")
    require_writable(path, "--export")
    _require_libraries(path)
    interrupts.defer()
    try:
        with interrupts.allowed():
            _export(config, checkpoint, path)
    except Interrupted as interrupted:
        return interrupted.status
    return 0


def _require_libraries(path: Path) -> None:
    """Raise UsageError unless the libraries that write and play the file are installed."""
    if not (importlib.util.find_spec("onnxscript") and importlib.util.find_spec("onnxruntime")):
        remedy = how_to_install("export", "requirements-extra.txt")
        raise UsageError(f"--export {path}: needs onnxscript and onnxruntime: {remedy}")


def _export(config: Config, checkpoint: Checkpoint | None, path: Path) -> None:
    # A file draws no actions: it plays the likeliest, and these are scored.
    policy = make_policy(dataclasses.replace(config, greedy=config.sample_actions), checkpoint)
    with as_usage_error(f"--export {path}: the network cannot be exported"):
        module, observation = as_module(policy)
        model = to_onnx(module, observation)
    if not config.silent:
        episodes = counted(config.eval_episodes, "episode")
        print(f"Playing {episodes} for the score of {path} ...", flush=True)
    score = _score(policy, player(model), observation, module.initial_state, path)
    assert checkpoint is not None
    environment = policy.environment
    greedy = config.sample_actions and "sample" in policy.network["actions"]
    metadata = {
        "env_id": environment["id"],
        "env_kwargs": environment["kwargs"],
        "env_wrappers": environment.get("wrappers", []),
        "frame_skip": environment["frame_skip"],
        "noop_max": environment["noop_max"],
        "fire_reset": environment.get("fire_reset", False),
        "max_episode_length": policy.recipe.cap(config.max_episode_length),
        "inputs": describe(inputs(observation, module.initial_state)),
        "initial_state": module.initial_state.tolist(),
        "greedy": greedy,
        "update": checkpoint.counters.update,
        "frames": checkpoint.counters.frames,
        "made_by": f"evolution-strategies {__version__}",
        "score": score,
    }
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(metadata)
    with writable(path, "--export"):
        replace(path, model.SerializeToString())
    if not config.silent:
        likeliest = ", the likeliest actions" if greedy else ""
        print(
            f"Exported {path}: mean {score['mean']:.2f}, standard deviation {score['std']:.2f}"
            f"{likeliest}",
            flush=True,
        )


def _score(
    policy: Policy, play: Play, observation: Any, initial_state: Tensor, path: Path
) -> dict[str, Any]:
    """Return the score of the file's own actions; raise UsageError if they are not the policy's."""
    with closing(make_bare_env(policy.environment)) as bare:
        both = FileActor(play, policy, bare, observation, initial_state)
    recipe = policy.recipe._replace(
        make_env=partial(make_env, policy.environment, preprocess=False), make_actor=lambda: both
    )
    mean, std = dataclasses.replace(policy, recipe=recipe).evaluate()
    if both.different > TIES * both.steps:
        raise UsageError(
            f"--export {path}: its actions are not those of the policy in {both.different} of "
            f"{both.steps} steps, so nothing is written"
        )
    return {"mean": mean, "std": std, "episodes": policy.config.eval_episodes}


# ---- the policy as one module ----


def as_module(policy: Policy) -> tuple["ExportedPolicy", Any]:
    """Return all of a policy as one module, and an example of its observations."""
    keeps_shape = policy.environment.get("shaped", False)
    clip = clip_of(policy.network) if policy.normalizer else math.inf
    with closing(make_bare_env(policy.environment)) as bare:
        view = make_view(bare, policy.statistics, clip, keeps_shape=keeps_shape)
        observation = example(bare.observation_space)
    decoder = Decoder(policy.network["actions"])
    return ExportedPolicy(view, policy.module(), decoder, observation), observation


class ExportedPolicy(nn.Module):
    """Choose actions of an environment's observations, and remember in one vector.

    view: of `make_view`. network: called with what the view shows and a state, which is a
    tensor or a tuple of tensors, float32, and None at first; returns outputs, or outputs and the
    next state. decoder: makes actions of outputs. observation: an example. initial_state: (S,)
    float32 zeros, none if nothing is remembered. Raise ValueError if the network's state is
    another, or if it takes zeros for another state than None.
    """

    def __init__(
        self, view: nn.Module, network: nn.Module, decoder: nn.Module, observation: Any
    ) -> None:
        super().__init__()
        self._view, self._network, self._decoder = view, network, decoder
        self.eval().requires_grad_(requires_grad=False)
        shown, view_state = view(observation, view.initial)
        outputs, memory = with_state(network(shown, None))
        if any(
            not isinstance(each, Tensor) or each.dtype != torch.float32 for each in _flat(memory)
        ):
            raise ValueError("its state must be a float32 tensor or a tuple of them")
        self._states = view_state, memory  # of which the shapes count
        size = sum(each.numel() for each in _flat(self._states))
        self.initial_state = torch.zeros(size)
        if memory is not None:
            again, after = with_state(network(shown, _unflat(memory, iter(_zeros_like(memory)))))
            if [each.shape for each in _flat(after)] != [each.shape for each in _flat(memory)]:
                raise ValueError("its state has another shape after each step")
            if not torch.allclose(outputs, again, equal_nan=True):
                raise ValueError("it must treat a state of zeros as it treats None")

    def forward(self, observation: Any, state: Tensor | None = None) -> Any:
        """Return the action, and the next state if there is one."""
        view_state = memory = None
        if state is not None:
            view_state, memory = self._unpack(state)
        shown, view_state = self._view(observation, view_state)
        outputs, memory = with_state(self._network(shown, memory))
        action = self._decoder(outputs)
        if state is None:
            return action
        parts = [each.reshape(-1).float() for each in _flat((view_state, memory))]
        return action, torch.cat(parts)

    def _unpack(self, state: Tensor) -> Any:
        like = _flat(self._states)
        parts = state.split([each.numel() for each in like])
        shaped = (
            part.reshape(each.shape).to(each.dtype) for part, each in zip(parts, like, strict=True)
        )
        return _unflat(self._states, shaped)


def _flat(state: Any) -> list[Any]:
    """Return the leaves of a state: None, a tensor, or a tuple or dict of states."""
    if state is None:
        return []
    if isinstance(state, tuple | dict):
        parts = state.values() if isinstance(state, dict) else state
        return [leaf for part in parts for leaf in _flat(part)]
    return [state]


def _unflat(like: Any, leaves: Iterator[Tensor]) -> Any:
    """Return a state like another one, with other leaves."""
    if isinstance(like, dict):
        return {key: _unflat(part, leaves) for key, part in like.items()}
    if isinstance(like, tuple):
        return tuple(_unflat(part, leaves) for part in like)
    return None if like is None else next(leaves)


def _zeros_like(state: Any) -> list[Tensor]:
    return [torch.zeros_like(each) for each in _flat(state)]


class Decoder(nn.Module):
    """Make the described action of a network's outputs, as `es.networks.actors` does.

    Where actions are drawn (--sample-actions), make the likeliest one; add no noise.
    """

    low: Tensor
    high: Tensor
    values: Tensor
    start: Tensor

    def __init__(self, actions: Mapping[str, Any]) -> None:
        super().__init__()
        self._kind = kind = actions["kind"]
        self._shape = actions.get("shape", ())
        named = {"multi-binary": "int8", "discrete": "int64"}.get(kind) or actions["dtype"]
        self._dtype: torch.dtype = torch.from_numpy(np.empty(0, named)).dtype
        self._bins, self._squash = actions.get("bins"), actions.get("squash")
        if kind == "box":
            low = rounded_inwards(actions["low"], np.inf)
            high = rounded_inwards(actions["high"], -np.inf)
            self.register_buffer("low", torch.from_numpy(low))
            self.register_buffer("high", torch.from_numpy(high))
            if self._bins:  # (dimensions, bins)
                values = np.linspace(low, high, self._bins, dtype=np.float32, axis=1)
                self.register_buffer("values", torch.from_numpy(values))
        elif kind != "multi-binary":
            self._counts = [actions["n"]] if kind == "discrete" else actions["counts"]
            self.register_buffer("start", torch.tensor(actions["start"]).reshape(-1))

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the action as the environment takes it. outputs: (outputs,) float32."""
        return self._numbers(outputs).reshape(self._shape).to(self._dtype)

    def _numbers(self, outputs: Tensor) -> Tensor:
        if self._kind == "multi-binary":
            return outputs > 0
        if self._kind != "box":
            choices = [part.argmax() for part in outputs.split(self._counts)]
            return torch.stack(choices) + self.start
        if self._bins:
            largest = outputs.reshape(-1, self._bins).argmax(dim=1, keepdim=True)
            numbers = self.values.gather(1, largest)
        elif self._squash == "clip":
            numbers = torch.clamp(outputs, self.low, self.high)
        else:
            share = (outputs.tanh() + 1) * 0.5
            numbers = torch.clamp(self.low + share * (self.high - self.low), self.low, self.high)
        return numbers if self._dtype.is_floating_point else numbers.round()


# ---- what the network sees ----
#
# A view is called with an observation, as tensors in the shape of its space, and with a state of
# its own, of which `initial` is the first. It returns what the network sees and the next state.
# Tests hold the views to `es.envs.Preprocessor`.


def make_view(
    bare: gymnasium.Env,
    statistics: DoubleArray | None = None,
    clip: float = math.inf,
    *,
    keeps_shape: bool = False,
) -> nn.Module:
    """Return the view of the environment that `es.envs.make_bare_env` makes.

    statistics: (2, inputs), means and 1 / standard deviation, if observations are normalised. clip:
    where they end, in deviations. keeps_shape: as for `as_network_sees`.
    """
    space, seen = bare.observation_space, as_network_sees(bare, "", keeps_shape=keeps_shape)
    if isinstance(seen, ImageObservation):
        return ImageView(seen, next(iter(space)) if isinstance(space, spaces.Dict) else None)
    if keeps_shape and isinstance(space, spaces.Dict):
        return DictView()
    return VectorView(space, seen.observation_space.shape or (), statistics, clip)


class VectorView(nn.Module):
    """Flatten observations as Gymnasium does, normalise them, and give them a shape: float32."""

    initial = None
    statistics: Tensor | None

    def __init__(
        self,
        space: spaces.Space,
        shape: tuple[int, ...],
        statistics: DoubleArray | None = None,
        clip: float = math.inf,
    ) -> None:
        super().__init__()
        self._space, self._shape, self._clip = space, shape, clip
        self.register_buffer("statistics", None if statistics is None else torch.tensor(statistics))

    def forward(self, observation: Any, state: None) -> tuple[Tensor, None]:
        """Return the numbers, computed in float64 where they are normalised."""
        dtype = torch.float32 if self.statistics is None else torch.float64
        numbers = torch.cat(_vectors(self._space, observation, dtype))
        if self.statistics is not None:
            mean, factor = self.statistics
            numbers = ((numbers - mean) * factor).clamp(-self._clip, self._clip).float()
        return numbers.reshape(self._shape), None


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


class DictView(nn.Module):
    """Show a Dict as it is, in float32."""

    initial = None

    def forward(self, observation: Mapping[str, Any], state: None) -> tuple[Any, None]:
        """Return the entries."""
        return _as_floats(observation), None


def _as_floats(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {key: _as_floats(part) for key, part in observation.items()}
    return observation.float()


class ImageView(nn.Module):
    """Shrink and normalise images as `ImageObservation` does, of which it has the matrices.

    key: of the image in a Dict; None: the observation is the image. state: (3,) float64, the
    running averages of the images' mean, of their standard deviation, and of 1, which corrects both
    for their start at 0.
    """

    initial = torch.zeros(3, dtype=torch.float64)
    rows: Tensor
    columns: Tensor

    def __init__(self, wrapper: ImageObservation, key: str | None = None) -> None:
        super().__init__()
        self._key, self._crop, self._axis = key, wrapper.crop, wrapper.channel_axis
        self._high = float(wrapper.high)
        self.register_buffer("rows", torch.tensor(wrapper.rows))
        self.register_buffer("columns", torch.tensor(wrapper.columns))

    def forward(self, observation: Any, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image, (1, 42, 42) float32, and the new averages."""
        gray = (observation if self._key is None else observation[self._key]).float()
        if self._axis is not None:
            gray = gray.mean(dim=self._axis)
        image = self.rows @ (gray[self._crop] / self._high) @ self.columns.T
        numbers = image.double()
        mean = numbers.mean()
        std = ((numbers - mean) ** 2).mean().sqrt()
        new = torch.stack([mean, std, torch.ones_like(mean)])
        state = ALPHA * state + (1 - ALPHA) * new
        centre, spread = (state[0] / state[2]).float(), (state[1] / state[2] + 1e-8).float()
        return ((image - centre) / spread)[None], state


# ---- the file ----


def example(space: spaces.Space) -> Any:
    """Return an observation of a space: tensors in a dict or a tuple, or one tensor."""
    if isinstance(space, spaces.Dict):
        return {key: example(part) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(example, space))
    return torch.from_numpy(np.array(space.sample()))


def inputs(observation: Any, state: Tensor, name: str = "observation") -> dict[str, Tensor]:
    """Return the file's inputs by name: parts of an observation are `observation.KEY`."""
    found: dict[str, Tensor] = {name: observation}
    if not isinstance(observation, Tensor):
        parts = observation.items() if isinstance(observation, dict) else enumerate(observation)
        found = {}
        for key, part in parts:
            found |= inputs(part, torch.empty(0), f"{name}.{key}")
    return found | ({"state": state} if state.numel() else {})


def describe(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return types and shapes as plain values, by the same names."""
    return {
        name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        for name, tensor in tensors.items()
    }


def to_onnx(module: ExportedPolicy, observation: Any) -> Any:
    """Return an ONNX model, without paths of this machine. observation: an example."""
    state = [module.initial_state] if module.initial_state.numel() else []
    with _quiet():
        # The optimiser takes a constant as small as 1e-8 for zero, and leaves it out of sums.
        program = torch.onnx.export(
            torch.export.export(module, (observation, *state)),
            input_names=[*inputs(observation, module.initial_state)],
            output_names=["action", "next_state"][: 1 + len(state)],
            optimize=False,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    model.ClearField("metadata_props")
    graph = model.graph
    for each in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        each.ClearField("metadata_props")  # where in the source it comes from
    graph.ClearField("value_info")
    return model


def player(model: Any) -> Play:
    """Return what plays an ONNX model by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4  # errors are raised
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def play(observation: Any, state: Tensor) -> tuple[np.ndarray, Tensor]:
        given = {name: each.numpy() for name, each in inputs(observation, state).items()}
        action, *after = session.run(None, given)
        return action, torch.from_numpy(after[0]) if after else state

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


class FileActor:
    """Play a file, and count in how many steps the policy's own actor acts otherwise: an actor.

    bare: an environment as `es.envs.make_bare_env` makes it, whose observations both are given.
    observation: an example of what the file takes.
    """

    def __init__(
        self, play: Play, policy: Policy, bare: gymnasium.Env, observation: Any,
        initial_state: Tensor,
    ) -> None:  # fmt: skip
        self._play, self._example, self._initial_state = play, observation, initial_state
        self._actor: Any = policy.recipe.make_actor()
        self._preprocess = Preprocessor(bare, policy.environment)
        self._tolerance: Any = 0
        actions = policy.network["actions"]
        if actions["kind"] == "box":
            spans = np.subtract(actions["high"], actions["low"])
            self._tolerance = TOLERANCE * spans.reshape(actions["shape"])
        self.steps = self.different = 0

    def bind(self, theta: FloatArray, statistics: DoubleArray | None = None) -> None:
        """Give the policy's actor its parameters, which the file has."""
        self._actor.bind(theta, statistics)

    def reset(self, seed: int | None = None, noise_seeds: tuple[int, int] | None = None) -> None:
        """Begin an episode."""
        self._actor.reset(seed, noise_seeds)
        self._preprocess.reset()
        self._state = self._initial_state

    def act(self, observation: Any) -> Any:
        """Return the file's action."""
        action, self._state = self._play(_like(self._example, observation), self._state)
        expected = self._actor.act(self._preprocess(observation))
        self.steps += 1
        # NaN is no action of the policy.
        self.different += not (abs(action.astype(float) - expected) <= self._tolerance).all()
        return action[()]

    def observed(self) -> DoubleArray | None:
        """Return what the policy's actor does."""
        observed: DoubleArray | None = self._actor.observed()
        return observed


def _like(observation: Any, other: Any) -> Any:
    """Return another observation as tensors of the types of an example, and only its entries."""
    if isinstance(observation, dict):
        return {key: _like(part, other[key]) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_like, observation, other))
    return torch.from_numpy(np.array(other, observation.numpy().dtype))
