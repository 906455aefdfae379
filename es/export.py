"""Write a policy as files that need nothing of this program."""

import importlib.util
import math
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from es import __version__
from es.config import Config
from es.environments.spaces import take_picture, without_text
from es.envs import make_bare_env
from es.errors import UsageError, blaming
from es.exporting import files
from es.exporting.actions import Decoder
from es.exporting.policy import ExportedPolicy
from es.exporting.shaped import make_shaped_view
from es.exporting.views import make_view
from es.interrupts import Interrupted, Interrupts
from es.networks import clip_of
from es.noise import FloatArray
from es.policy import describe, evaluate, policy_module
from es.rollouts.interface import counted
from es.runs import directory
from es.runs.checkpoint import Checkpoint
from es.runs.restored import Restored, restored_normalizer
from es.runs.setup import Setup

WRITERS = {".onnx": files.to_onnx, ".pt2": files.to_pt2}


def export(config: Config, restored: Restored, interrupts: Interrupts) -> int:
    """Write the policy of --restore to the files of --export; return the exit status.

    Raise UsageError if they cannot be written, or if the network cannot be made a graph.
    """
    paths = _paths(config.export or "")
    interrupts.defer()
    try:
        with interrupts.allowed():
            _export(config, restored, paths)
    except Interrupted as interrupted:
        return interrupted.status
    return 0


def _export(config: Config, restored: Restored, paths: list[Path]) -> None:
    # A file draws no actions: it plays the likeliest, and these are scored.
    config = replace(config, greedy=config.sample_actions)
    setup, theta = describe(config, restored)
    with blaming("--export: the network cannot be made a graph"):
        policy, observation = _assemble(config, restored, setup, theta)
        program = files.trace(policy, observation)
    if not config.silent:
        print(f"Playing {counted(config.eval_episodes, 'episode')} for its score ...", flush=True)
    mean, std = evaluate(config, restored, setup, theta)
    tensors = files.inputs(observation)
    if policy.initial_state.numel():
        tensors["state"] = policy.initial_state
    counters = restored.counters if isinstance(restored, Checkpoint) else None
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
        "score": {"mean": mean, "std": std, "episodes": config.eval_episodes},
        "greedy": config.greedy and "sample" in setup.network["actions"],
        "update": counters.update if counters else 0,
        "frames": counters.frames if counters else 0,
        "made_by": f"evolution-strategies {__version__}",
    }
    for path in paths:
        content = WRITERS[path.suffix](program, metadata)
        with directory.writable(path, "--export"):
            directory.replace(path, content)
        if not config.silent:
            print(f"Exported {path}: {_summary(metadata)}", flush=True)


def _paths(out: str) -> list[Path]:
    """Return the files to write; raise UsageError if they cannot be, before anything is played."""
    suffix = Path(out).suffix
    with directory.writable(Path(out), "--export"):
        paths = [Path(out)] if suffix else [Path(out).with_suffix(ending) for ending in WRITERS]
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
        with tempfile.TemporaryFile(dir=paths[0].parent):
            pass
    if suffix != ".pt2" and importlib.util.find_spec("onnxscript") is None:
        raise UsageError(
            f"--export {out}: ONNX needs onnxscript: pip install -r requirements-extra.txt, or "
            f"export {Path(out).with_suffix('.pt2')}, which needs nothing more"
        )
    return paths


def _assemble(
    config: Config, restored: Restored, setup: Setup, theta: FloatArray
) -> tuple[ExportedPolicy, Any]:
    """Return all of the policy as one module, and an observation for it."""
    network = policy_module(setup, theta)
    normalizer = restored_normalizer(config, setup.normalized_inputs, restored)
    statistics = normalizer.statistics() if normalizer else None
    shaped = setup.environment.get("shaped", False)
    with closing(make_bare_env(setup.environment)) as bare:
        env = bare if shaped else take_picture(bare)
        make = make_shaped_view if shaped else make_view
        view = make(env, statistics, clip_of(setup.network) if statistics is not None else math.inf)
        observation = files.example(without_text(env.observation_space))
    decoder = Decoder(setup.network["actions"])
    return ExportedPolicy(view, network, decoder, observation), observation


def _summary(metadata: dict[str, Any]) -> str:
    score, drawn = metadata["score"], ", the likeliest actions" if metadata["greedy"] else ""
    return f"mean {score['mean']:.2f}, standard deviation {score['std']:.2f}{drawn}"
