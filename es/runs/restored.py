"""What a restored checkpoint holds: its settings, its statistics, whether its scores compare."""

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from es.algorithm.statistics import Normalizer
from es.config import Config, on_a_command_line, shown, sources
from es.config.validation import validate
from es.errors import UsageError
from es.program import command
from es.runs.checkpoint import Checkpoint, load
from es.runs.directory import LATEST

Restored = Checkpoint | dict[str, Tensor] | None  # ours, the weights of pytorch-es, or nothing
SETTINGS_OF_ENVIRONMENT = (
    "env_name", "env_kwargs", "env_wrapper", "frame_skip", "noop_max", "fire_reset",
    "sticky_actions",
)  # fmt: skip
SETTINGS_OF_SCORES = (
    *SETTINGS_OF_ENVIRONMENT, "max_episode_length", "episodes_per_perturbation", "sample_actions"
)  # fmt: skip
SETTINGS_OF_POLICY = (
    "net", "net_kwargs", "hidden_sizes", "activation", "obs_norm", "vbn", "action_bins", "squash"
)  # fmt: skip


def restore(
    parse: Callable[[dict[str, Any]], Config], config: Config, argv: Sequence[str] = ()
) -> tuple[Config, Restored]:
    """Load --restore, of a directory its latest checkpoint; return the settings and what it holds.

    parse: returns the settings, given the checkpoint's own ones as the defaults. argv: the command
    line, if there is one. Raise UsageError if what is chosen otherwise contradicts the checkpoint
    and --override is not given.
    """
    config = replace(config, restore=_latest_in(config.restore))
    restored = load(config.restore)
    if not isinstance(restored, Checkpoint):
        config = replace(parse({}), restore=config.restore)
        validate(config)
        return config, restored
    own = sources.inherited(restored.settings, f"--restore {config.restore}")
    damaged = f"--restore {config.restore} is damaged: its history"
    history = {
        update: sources.from_mapping(former, damaged) for update, former in restored.history.items()
    }
    restored = restored._replace(history=history)
    before = Config(**own)
    left_out = {"restore", "run_dir", "override"}
    if config.instead:
        left_out.add("silent")  # these should say something about a run that was silent
    chosen = parse({name: own[name] for name in own.keys() - left_out})
    given = {"--env-wrapper": config.env_wrapper, **config.imported}
    unnamed = {flag: words for flag, words in before.imported.items() if not given.get(flag)}
    if chosen.env_name != before.env_name:  # another one is given
        unnamed.pop("--env-name", None)
    if not chosen.env_wrapper:  # taken off, by an empty list
        unnamed.pop("--env-wrapper", None)
    if unnamed:
        plays = " in ".join(map(shown, unnamed.values()))
        refusal = f"--restore {config.restore}: plays {plays}, and would import its module; "
        if argv:
            again = command("main", *argv, *on_a_command_line(unnamed))
            raise UsageError(f"{refusal}if you know it, run:", command=again)
        keywords = ", ".join(
            f"{flag}={(words[0] if len(words) == 1 else [*words])!r}"
            for flag, words in unnamed.items()
        )
        raise UsageError(f"{refusal}if you know it, give {keywords}")
    config = replace(chosen, restore=config.restore)
    validate(config)
    before = _moved(before, config)
    if changed := sources.differences(config, before, SETTINGS_OF_POLICY):
        raise UsageError(
            f"{'; '.join(changed)}: the policy is made for the checkpoint's: give that, or start a "
            "new run"
        )
    changed = sources.differences(
        config, before, ("env_name", "small_net") if config.instead else ()
    )
    if changed and not config.override:
        raise UsageError(
            f"{'; '.join(changed)}: leave it out, or give --override to change it on purpose"
        )
    return config, restored


def _moved(before: Config, config: Config) -> Config:
    """Return the settings of before, with the new modules of what keeps its name.

    What a script has defined is played by other programs once it lies in a module.
    """

    def same(then: str, now: str) -> str:
        return now if then.removeprefix("__main__:") == now.rpartition(":")[2] else then

    return replace(
        before,
        env_name=same(before.env_name, config.env_name),
        net=same(before.net, config.net) if before.net and config.net else before.net,
        env_wrapper=(
            *map(same, before.env_wrapper, config.env_wrapper),
            *before.env_wrapper[len(config.env_wrapper) :],
        ),
    )


def settings_of(ours: Checkpoint) -> Config:
    """Return the settings of the checkpoint's run."""
    return Config(**sources.from_mapping(ours.settings, "checkpoint"))


def settings_before(config: Config, ours: Checkpoint) -> Config:
    """Return the settings of the checkpoint's run, to compare those that it goes on with."""
    return _moved(settings_of(ours), config)


def scored_alike(config: Config, ours: Checkpoint) -> bool:
    """Return whether scores of the checkpoint's run can be compared with those to come."""
    return not sources.differences(config, settings_before(config, ours), SETTINGS_OF_SCORES)


def restored_normalizer(config: Config, inputs: int, restored: Restored) -> Normalizer | None:
    """Return the statistics of observations: the checkpoint's, or else new ones.

    inputs: how many numbers an observation has. If it is 0, observations are not normalised: return
    None. Raise UsageError if the checkpoint's statistics are damaged.
    """
    if not inputs:
        return None
    normalizer = Normalizer(inputs, config.obs_std_floor)
    if isinstance(restored, Checkpoint) and restored.settings.get("obs_norm"):
        try:
            normalizer.load(restored.normalizer or {})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"--restore {config.restore}: is damaged ({error!r})") from error
    return normalizer


def _latest_in(path: str) -> str:
    """Return the checkpoint, or the latest one of a run's directory.

    Raise UsageError if a directory holds none.
    """
    if not os.path.isdir(path):  # unlike Path.is_dir, this raises nothing
        return path
    if not (latest := Path(path) / LATEST).exists():
        raise UsageError(f"--restore {path}: holds no {LATEST}; give a run's directory or a file")
    return str(latest)


def checkpoints_in(path: str) -> list[str]:
    """Return the checkpoint, or those of a directory: first update-*, by update, then the others.

    Raise UsageError if a directory holds none.
    """
    if not os.path.isdir(path):  # unlike Path.is_dir, this raises nothing
        return [path]
    found: list[tuple[float, str]] = []
    for file in Path(path).glob("*.safetensors"):
        number = re.fullmatch(r"update-(\d+)", file.stem)
        found.append((int(number[1]) if number else math.inf, str(file)))
    if not found:
        raise UsageError(
            f"--restore {path}: holds no checkpoint (*.safetensors); give a run's directory"
        )
    return [file for _, file in sorted(found)]
