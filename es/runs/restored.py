"""What a restored checkpoint says: its settings, its statistics, whether its scores compare."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from es.algorithm.normalizer import Normalizer
from es.config import Config, sources
from es.config.sources import differences, from_mapping
from es.config.validation import validate
from es.errors import UsageError
from es.runs.checkpoint import Checkpoint, load

Restored = Checkpoint | dict[str, Tensor] | None  # ours, the weights of pytorch-es, or nothing
SETTINGS_OF_ENVIRONMENT = (
    "env_name", "env_kwargs", "frame_skip", "noop_max", "sticky_actions"
)  # fmt: skip
# The settings that decide how good a score is.
SCORED = (*SETTINGS_OF_ENVIRONMENT, "max_episode_length", "episodes_per_perturbation")

POLICY = ("hidden_sizes", "activation", "obs_norm", "vbn", "action_bins")  # fix its shape


def restore(argv: Sequence[str], config: Config, file: dict[str, Any]) -> tuple[Config, Restored]:
    """The checkpoint, and the settings with its own below those of the file and the flags.

    Raises UsageError where these contradict the checkpoint's and --override is not given.
    """
    restored = load(config.restore)
    if not isinstance(restored, Checkpoint):
        validate(config)
        return config, restored
    own = sources.inherited(restored.settings, f"--restore {config.restore}")
    if ":" in own["env_name"] and own["env_name"] != config.env_name:
        raise UsageError(
            f"--restore {config.restore}: plays {own['env_name']}, and would import its module; "
            f"if you know it, give --env-name {own['env_name']}"
        )
    # A run that was silent may well be watched.
    aside = ("restore", "run_dir", "override", *(("silent",) if config.test else ()))
    below = {name: own[name] for name in own if name not in aside}
    if config.use_adam or config.optimizer:  # a choice, for which there are two flags
        below = {name: below[name] for name in below if name not in sources.OPTIMIZER}
    config = replace(sources.parse(argv, below | file), restore=config.restore)
    validate(config)
    if changed := sources.differences(config, own, POLICY):
        raise UsageError(
            f"{'; '.join(changed)}: the policy is made for it; leave it out, or start a new run"
        )
    differing = sources.differences(config, own, ("env_name", "small_net") if config.test else ())
    if differing and not config.override:
        raise UsageError(
            f"{'; '.join(differing)}: leave it out, or give --override to change it on purpose"
        )
    return config, restored


def settings_of(ours: Checkpoint) -> Config:
    """Return the settings of the checkpoint's run."""
    return Config(**from_mapping(ours.settings, "checkpoint"))


def differing(config: Config, ours: Checkpoint, names: tuple[str, ...]) -> list[str]:
    """Return sentences for those of the named settings in which the checkpoint's run differs."""
    return differences(config, from_mapping(ours.settings, "checkpoint"), names)


def scored_alike(config: Config, ours: Checkpoint) -> bool:
    """Return whether scores of the checkpoint's run can be compared with those to come."""
    return not differing(config, ours, SCORED)


def restored_normalizer(config: Config, inputs: int, restored: Restored) -> Normalizer | None:
    """Return the statistics of observations, the checkpoint's if it has any.

    inputs: how many numbers an observation has; 0 where they are not normalised, for None. Raise
    UsageError where the statistics do not fit.
    """
    if not inputs:
        return None
    normalizer = Normalizer(inputs)
    if isinstance(restored, Checkpoint) and restored.settings.get("obs_norm"):
        try:
            normalizer.load(restored.normalizer or {})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error!r})") from error
    return normalizer


def checkpoints_in(path: str) -> list[str]:
    """Return the checkpoint, or those of a directory: by their updates, then all others.

    Raise UsageError where a directory holds none.
    """
    if not Path(path).is_dir():
        return [path]
    found = [str(file) for file in Path(path).glob("*.safetensors")]
    if not found:
        raise UsageError(
            f"--restore {path}: holds no checkpoint (*.safetensors); give a run's directory"
        )

    def place(path: str) -> tuple[float, str]:
        number = re.fullmatch(r"update-(\d+)\.safetensors", Path(path).name)
        return (int(number[1]) if number else math.inf), path

    return sorted(found, key=place)
