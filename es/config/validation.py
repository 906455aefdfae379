"""Checks of values and of combinations of settings."""

import math
from typing import Any

from es.config import FIELDS, Config, flag, flag_with_value, shown
from es.config.option import Check
from es.errors import UsageError

LONGEST = 100  # characters of a value in a message
FOR_TEST = ("episodes", "no_render", "greedy", "video", "json", "stochastic_start")


def validate(config: Config, *, combinations: bool = True) -> None:
    """Raise UsageError, naming flag, value and remedy, for the first setting that is wrong.

    combinations: False while a checkpoint's settings are still missing.
    """
    for name, field in FIELDS.items():
        require(flag(name), getattr(config, name), field.metadata["check"])
    if combinations:
        _validate_combinations(config)
    instead = config.instead
    if instead and not config.restore:
        verb = "play" if config.test else "export"
        raise UsageError(f"{instead} needs --restore CHECKPOINT, the policy to {verb}")
    if config.test and config.export:
        raise UsageError(f"--test and --export {config.export}: give one of them")
    for name in FOR_TEST:
        value = getattr(config, name)
        if value not in (None, False) and not config.test:
            raise UsageError(f"{flag_with_value(name, value)}: is for --test; give both")
    if config.json and config.video:
        raise UsageError(f"--json and --video {config.video}: give one of them")
    if config.wandb and instead:
        raise UsageError(f"--wandb: is for training, and {instead} reports nothing; leave it out")
    if config.ray is not None:
        ray = f"--ray {config.ray}"
        if instead:
            raise UsageError(f"{ray}: is for training, and {instead} plays here; leave it out")
        if config.workers == 0:
            raise UsageError(f"{ray}: plays on a cluster, and --workers 0 here: give one of them")


def require(name: str, value: Any, check: Check | None) -> None:
    """Raise UsageError if a flag's value does not pass its check."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} {value}: must be a finite number")
    if value is not None and check is not None and not check.passes(value):
        text = shown(value) if isinstance(value, tuple) else repr(value)
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise UsageError(f"{name} {text}: {check.words}")


def _validate_combinations(config: Config) -> None:
    mirrored = config.sampling == "antithetic"
    refused = {
        f"--n {config.n}: must be an even number, 2 or more (or with --sampling gaussian)": (
            mirrored and config.n % 2
        ),
        f"--useAdam contradicts --optimizer {config.optimizer}: give one of them": (
            config.use_adam and config.optimizer not in (None, "adam")
        ),
        f"--momentum {config.momentum}: is for --optimizer sgd; leave it out (--momentum 0)": (
            config.momentum and config.optimizer_name != "sgd"
        ),
        f"--top-directions {config.top_directions}: chooses among pairs, and --sampling gaussian "
        "has none": config.top_directions and not mirrored,
        f"--top-directions {config.top_directions}: must be at most half of --n {config.n}, the "
        "number of pairs": mirrored and (config.top_directions or 0) > config.n // 2,
        f"--sigma-min {config.sigma_min}: is a limit for --sigma-decay; give both or none "
        "(--sigma-min None)": (config.sigma_min is not None and config.sigma_decay == 1),
        f"--sigma-min {config.sigma_min}: must be at most --sigma {config.sigma}": (
            (config.sigma_min or 0) > config.sigma
        ),
        "--sigma-adapt: compares pairs, and --sampling gaussian has none": (
            config.sigma_adapt and not mirrored
        ),
        f"--param-fraction {config.param_fraction}: does not go with --sigma-adapt, which judges "
        "every parameter's noise": config.sigma_adapt and config.param_fraction < 1,
        f"--top-directions {config.top_directions}: does not go with --sigma-adapt, which compares "
        "all pairs": config.sigma_adapt and config.top_directions is not None,
        f"--sigma-lr {config.sigma_lr}: is for --sigma-adapt; give both or none": (
            config.sigma_lr != FIELDS["sigma_lr"].default and not config.sigma_adapt
        ),
        f"--n-max {config.n_max}: is for --frames-per-update; give both or none": (
            config.n_max is not None and config.frames_per_update is None
        ),
        f"--n-max {config.n_max}: must be at least --n {config.n}, and even for mirrored pairs": (
            config.n_max is not None
            and (config.n_max < config.n or (mirrored and config.n_max % 2 == 1))
        ),
        "--optimizer clipup and --max-speed, its longest step, belong together; give both": (
            (config.optimizer_name == "clipup") != (config.max_speed is not None)
        ),
        f"--net-kwargs {shown(config.net_kwargs)}: are arguments of --net; give both or none": (
            config.net_kwargs and not config.net
        ),
        "--init zero: is for linear policies, which have no hidden layers; give --hidden-sizes "
        "without numbers": config.init == "zero" and bool(config.hidden_sizes),
        f"--activation {config.activation}: is for hidden layers, and --hidden-sizes names none": (
            not config.hidden_sizes and config.activation != "selu"
        ),
        "--training-ep-len, --variable-ep-len and --adaptive-ep-len are ways to choose the cap: "
        "give one": (
            (config.training_ep_len is not None) + config.variable_ep_len + config.adaptive_ep_len
            > 1
        ),
        f"--rollout-timeout {config.rollout_timeout}: ends worker processes, and --workers 0 has "
        "none; leave it out": config.rollout_timeout is not None and config.workers == 0,
        f"--n {config.n_most}: with --episodes-per-perturbation {config.episodes_per_perturbation} "
        "that is too many episodes; a million are possible": (
            config.n_most * config.episodes_per_perturbation > 10**6
        ),
    }
    for message, applies in refused.items():
        if applies:
            raise UsageError(message)
