"""Checks of values and of combinations of settings."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

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
        for rule in broken_rules(config):
            raise UsageError(rule.message)
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
    if config.ray is not None and instead:
        raise UsageError(
            f"--ray {config.ray}: is for training, and {instead} plays here; leave it out"
        )


def require(name: str, value: Any, check: Check | None) -> None:
    """Raise UsageError if a flag's value does not pass its check."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} {value}: must be a finite number")
    if value is not None and check is not None and not check.passes(value):
        text = shown(value) if isinstance(value, tuple) else repr(value)
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise UsageError(f"{name} {text}: {check.words}")


class Rule(NamedTuple):
    """A rule between settings.

    broken: whether these do not keep it. message: of the error. settings: the fields in it.
    yielding: those that have no use beside the others. A higher layer that sets another takes them
    back from lower ones.
    """

    broken: bool
    message: str
    settings: tuple[str, ...]
    yielding: tuple[str, ...] = ()


def broken_rules(config: Config) -> Iterator[Rule]:
    """Yield the rules between settings that are broken."""
    mirrored = config.sampling == "antithetic"
    optimizer = ("optimizer", "use_adam")
    caps = ("training_ep_len", "variable_ep_len", "adaptive_ep_len")
    rules = (
        Rule(
            mirrored and config.n % 2 == 1,
            f"--n {config.n}: must be an even number, 2 or more (or with --sampling gaussian)",
            ("n", "sampling"),
        ),
        Rule(
            config.use_adam and config.optimizer not in (None, "adam"),
            f"--useAdam contradicts --optimizer {config.optimizer}: give one of them",
            optimizer,
            yielding=optimizer,
        ),
        Rule(
            config.momentum > 0 and config.optimizer_name != "sgd",
            f"--momentum {config.momentum}: is for --optimizer sgd; leave it out (--momentum 0)",
            ("momentum", *optimizer),
            yielding=("momentum",),
        ),
        Rule(
            config.top_directions is not None and not mirrored,
            f"--top-directions {config.top_directions}: chooses among pairs, and --sampling "
            "gaussian has none",
            ("top_directions", "sampling"),
            yielding=("top_directions",),
        ),
        Rule(
            mirrored and (config.top_directions or 0) > config.n // 2,
            f"--top-directions {config.top_directions}: must be at most half of --n {config.n}, "
            "the number of pairs",
            ("top_directions", "n"),
        ),
        Rule(
            config.sigma_min is not None and config.sigma_decay == 1,
            f"--sigma-min {config.sigma_min}: is a limit for --sigma-decay; give both or none "
            "(--sigma-min None)",
            ("sigma_min", "sigma_decay"),
            yielding=("sigma_min",),
        ),
        Rule(
            (config.sigma_min or 0) > config.sigma,
            f"--sigma-min {config.sigma_min}: must be at most --sigma {config.sigma}",
            ("sigma_min", "sigma"),
        ),
        Rule(
            config.sigma_adapt and not mirrored,
            "--sigma-adapt: compares pairs, and --sampling gaussian has none",
            ("sigma_adapt", "sampling"),
            yielding=("sigma_adapt",),
        ),
        Rule(
            config.sigma_adapt and config.param_fraction < 1,
            f"--param-fraction {config.param_fraction}: does not go with --sigma-adapt, which "
            "judges every parameter's noise",
            ("param_fraction", "sigma_adapt"),
            yielding=("param_fraction", "sigma_adapt"),
        ),
        Rule(
            config.sigma_adapt and config.top_directions is not None,
            f"--top-directions {config.top_directions}: does not go with --sigma-adapt, which "
            "compares all pairs",
            ("top_directions", "sigma_adapt"),
            yielding=("top_directions", "sigma_adapt"),
        ),
        Rule(
            config.sigma_lr != FIELDS["sigma_lr"].default and not config.sigma_adapt,
            f"--sigma-lr {config.sigma_lr}: is for --sigma-adapt; give both or none",
            ("sigma_lr", "sigma_adapt"),
            yielding=("sigma_lr",),
        ),
        Rule(
            config.n_max is not None and config.frames_per_update is None,
            f"--n-max {config.n_max}: is for --frames-per-update; give both or none",
            ("n_max", "frames_per_update"),
            yielding=("n_max",),
        ),
        Rule(
            config.n_max is not None
            and (config.n_max < config.n or (mirrored and config.n_max % 2 == 1)),
            f"--n-max {config.n_max}: must be at least --n {config.n}, and even for mirrored pairs",
            ("n_max", "n", "sampling"),
        ),
        Rule(
            (config.optimizer_name == "clipup") != (config.max_speed is not None),
            "--optimizer clipup and --max-speed, its longest step, belong together; give both",
            ("max_speed", *optimizer),
            yielding=("max_speed",),
        ),
        Rule(
            bool(config.net_kwargs) and not config.net,
            f"--net-kwargs {shown(config.net_kwargs)}: are arguments of --net; give both or none",
            ("net_kwargs", "net"),
            yielding=("net_kwargs",),
        ),
        Rule(
            config.init == "zero" and bool(config.hidden_sizes),
            "--init zero: is for linear policies, which have no hidden layers; give --hidden-sizes "
            "without numbers",
            ("init", "hidden_sizes"),
            yielding=("init",),
        ),
        Rule(
            not config.hidden_sizes and config.activation != "selu",
            f"--activation {config.activation}: is for hidden layers, and --hidden-sizes names "
            "none",
            ("activation", "hidden_sizes"),
            yielding=("activation",),
        ),
        Rule(
            (config.training_ep_len is not None) + config.variable_ep_len + config.adaptive_ep_len
            > 1,
            "--training-ep-len, --variable-ep-len and --adaptive-ep-len are ways to choose the "
            "cap: give one",
            caps,
            yielding=caps,
        ),
        Rule(
            config.rollout_timeout is not None and config.workers == 0,
            f"--rollout-timeout {config.rollout_timeout}: ends worker processes, and --workers 0 "
            "has none; leave it out",
            ("rollout_timeout", "workers"),
            yielding=("rollout_timeout",),
        ),
        Rule(
            config.ray is not None and config.workers == 0,
            f"--ray {config.ray}: plays on a cluster, and --workers 0 here: give one of them",
            ("ray", "workers"),
            yielding=("workers",),
        ),
        Rule(
            config.n_most * config.episodes_per_perturbation > 10**6,
            f"--n {config.n_most}: with --episodes-per-perturbation "
            f"{config.episodes_per_perturbation} that is too many episodes; a million are possible",
            ("n", "n_max", "frames_per_update", "episodes_per_perturbation"),
        ),
    )
    return (rule for rule in rules if rule.broken)
