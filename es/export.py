"""Write a policy as files that need nothing of this program."""

import dataclasses
import importlib.util
import math
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from es import __version__
from es.algorithm.noise import FloatArray
from es.checkpoint import Checkpoint, replace
from es.config import Config
from es.environments.spaces import Preprocessor
from es.envs import make_bare_env, make_env
from es.errors import Interrupted, Interrupts, UsageError, as_usage_error, how_to_install
from es.exporting import files
from es.exporting.actions import Decoder
from es.exporting.beside import Beside
from es.exporting.policy import ExportedPolicy
from es.exporting.views import make_view
from es.networks import clip_of
from es.policy import describe, evaluate, policy_module, restored_normalizer
from es.rollouts.interface import counted
from es.runs import directory
from es.runs.setup import Setup

FORMATS: dict[str, type[files.OnnxFile | files.Pt2File]] = {
    ".onnx": files.OnnxFile,
    ".pt2": files.Pt2File,
}


def export(config: Config, restored: Checkpoint | None, interrupts: Interrupts) -> int:
    """Write the policy of --restore to the files of --export; return the exit status.

    Raise UsageError if they cannot be written, if the network cannot be made a graph, or if a file
    does not play as the policy does.
    """
    paths = _paths(config.export or "")
    interrupts.defer()
    try:
        with interrupts.allowed():
            _export(config, restored, paths)
    except Interrupted as interrupted:
        return interrupted.status
    return 0


def _export(config: Config, restored: Checkpoint | None, paths: list[Path]) -> None:
    # A file draws no actions: it plays the likeliest, and these are scored.
    config = dataclasses.replace(config, greedy=config.sample_actions)
    setup, theta = describe(config, restored)
    with as_usage_error("--export: the network cannot be made a graph"):
        policy, observation = _assemble(config, restored, setup, theta)
        program = files.trace(policy, observation)
    tensors = files.inputs(observation)
    if policy.initial_state.numel():
        tensors["state"] = policy.initial_state
    assert restored is not None
    environment = setup.environment
    metadata = {
        "env_id": environment["id"],
        "env_kwargs": environment["kwargs"],
        "env_wrappers": environment.get("wrappers", []),
        "frame_skip": environment["frame_skip"],
        "noop_max": environment["noop_max"],
        "fire_reset": environment.get("fire_reset", False),
        "max_episode_length": setup.recipe.cap(config.max_episode_length),
        "inputs": files.describe(tensors),
        "initial_state": policy.initial_state.tolist(),
        "greedy": config.greedy and "sample" in setup.network["actions"],
        "update": restored.counters.update,
        "frames": restored.counters.frames,
        "made_by": f"evolution-strategies {__version__}",
    }
    contents: dict[Path, tuple[bytes, str]] = {}
    for path in paths:
        if not config.silent:
            episodes = counted(config.eval_episodes, "episode")
            print(f"Playing {episodes} for the score of {path} ...", flush=True)
        with as_usage_error(f"--export {path}: the network cannot be written"):
            file = FORMATS[path.suffix](program, list(tensors))
            play = file.load()
        metadata["score"] = _score(config, restored, setup, theta, policy, observation, play, path)
        contents[path] = file.content(metadata), _summary(metadata)
    for path, (content, summary) in contents.items():
        with directory.writable(path, "--export"):
            replace(path, content)
        if not config.silent:
            print(f"Exported {path}: {summary}", flush=True)


def _score(
    config: Config, restored: Checkpoint | None, setup: Setup, theta: FloatArray,
    policy: ExportedPolicy, observation: Any, play: files.Play, path: Path,
) -> dict[str, Any]:  # fmt: skip
    """Return the score of a file's own actions; raise UsageError if they are not the policy's."""
    with closing(make_bare_env(setup.environment)) as bare:
        see = Preprocessor(
            bare, config.env_name, keeps_shape=setup.environment.get("shaped", False)
        )
        beside = Beside(
            play, setup.recipe.make_actor(), see, observation, policy.initial_state,
            setup.network["actions"],
        )  # fmt: skip
    recipe = setup.recipe._replace(
        make_env=partial(make_env, setup.environment, preprocess=False), make_actor=lambda: beside
    )
    mean, std = evaluate(config, restored, setup._replace(recipe=recipe), theta)
    if complaint := beside.complaint():
        raise UsageError(
            f"--export {path}: its actions are not those of the policy {complaint}, so nothing is "
            "written; try the other format (.onnx or .pt2)"
        )
    return {"mean": mean, "std": std, "episodes": config.eval_episodes}


def _paths(out: str) -> list[Path]:
    """Return the files to write; raise UsageError if they cannot be, before anything is played."""
    suffix = Path(out).suffix
    with directory.writable(Path(out), "--export"):
        paths = [Path(out)] if suffix else [Path(out).with_suffix(ending) for ending in FORMATS]
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
        with tempfile.TemporaryFile(dir=paths[0].parent):
            pass
    if suffix != ".pt2" and importlib.util.find_spec("onnxscript") is None:
        raise UsageError(
            f"--export {out}: ONNX needs onnxscript: "
            f"{how_to_install('export', 'requirements-extra.txt')}, or export "
            f"{Path(out).with_suffix('.pt2')}, which needs nothing more"
        )
    return paths


def _assemble(
    config: Config, restored: Checkpoint | None, setup: Setup, theta: FloatArray
) -> tuple[ExportedPolicy, Any]:
    """Return all of the policy as one module, and an observation for it."""
    network = policy_module(setup, theta)
    normalizer = restored_normalizer(config, setup.normalized_inputs, restored)
    statistics = normalizer.statistics() if normalizer else None
    shaped = setup.environment.get("shaped", False)
    with closing(make_bare_env(setup.environment)) as bare:
        clip = clip_of(setup.network) if statistics is not None else math.inf
        view = make_view(bare, statistics, clip, keeps_shape=shaped)
        observation = files.example(bare.observation_space)
    decoder = Decoder(setup.network["actions"])
    return ExportedPolicy(view, network, decoder, observation), observation


def _summary(metadata: dict[str, Any]) -> str:
    score, drawn = metadata["score"], ", the likeliest actions" if metadata["greedy"] else ""
    return f"mean {score['mean']:.2f}, standard deviation {score['std']:.2f}{drawn}"
