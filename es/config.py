"""Every setting: its default, help text and check, and the rules between settings.

Nothing heavy is imported here, so that `--help` answers at once.
"""

import argparse
import ast
import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse, pairwise
from typing import Any, Literal, NamedTuple

from es.errors import UsageError, suggest

MOST = 2**53  # up to which whole numbers are the same in JSON, TOML and TensorBoard's floats
LONGEST_VALUE = 100  # characters of a value in a message


class Check(NamedTuple):
    """A condition on a value, and the words for it in a message."""

    passes: Callable[[Any], bool]
    words: str


class Rule(NamedTuple):
    """A broken rule between settings.

    message: the error's. settings: the fields of the rule. yielding: those of them that are
    dropped from a lower layer when a higher layer sets another one.
    """

    message: str
    settings: tuple[str, ...]
    yielding: tuple[str, ...] = ()


def between(low: float, high: float) -> Check:
    """Return the check of a range, both ends included."""
    return Check(lambda value: low <= value <= high, f"must be from {low:,} to {high:,}")


def matching(pattern: str, words: str) -> Check:
    """Return the check of a text that has to match a regular expression as a whole."""
    return Check(lambda value: re.fullmatch(pattern, value) is not None, words)


def is_assignment(word: str) -> bool:
    """Return whether a word is KEY=VALUE."""
    return "=" in word and word.partition("=")[0].isidentifier()


def is_callable_name(word: str) -> bool:
    """Return whether a word is MODULE:NAME."""
    return re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", word) is not None


POSITIVE = Check(lambda value: value > 0, "must be above 0")
SEED, LIMIT = between(0, MOST), between(1, MOST)
BATCH, COUNT, BINS = between(2, 10**6), between(1, 10**6), between(2, 65_536)
REPEATS, NOOPS = between(1, 1000), between(0, 1000)
PROBABILITY, FRACTION = between(0, 1), between(1e-6, 1)
AMOUNT, SCALE, STRENGTH = between(-1e30, 1e30), between(1e-30, 1e30), between(0, 1e30)
BELOW_ONE = Check(lambda value: 0 <= value < 1, "must be 0 or more and below 1")
NOT_EMPTY = matching(r"(?s:.*\S.*)", "must not be empty")
WIDTHS = Check(
    lambda value: len(value) <= 100 and all(1 <= width <= 65_536 for width in value),
    "must be the units of at most 100 layers, each from 1 to 65536, or nothing for a linear policy",
)
ASSIGNMENTS = Check(
    lambda value: all(map(is_assignment, value)),
    "must be arguments, such as gravity=-9.0 continuous=True",
)
MODULE_CLASS = Check(is_callable_name, "must be MODULE:CLASS, such as my_networks:Policy")
WRAPPERS = Check(
    lambda value: (
        not value
        or (
            is_callable_name(value[0])
            and all(map(is_callable_name, filterfalse(is_assignment, value)))
        )
    ),
    "must be MODULE:CALLABLE and its arguments, such as gymnasium.wrappers:FilterObservation "
    "\"filter_keys=['image']\"",
)
ASCENDING = Check(
    lambda value: not value or (len(value) == 2 and -1e30 <= value[0] < value[1] <= 1e30),
    "must be two numbers, the lower one first, such as -1 1",
)
RAY = matching(
    r"auto|local|[\w.-]+:\d{1,5}",
    "must be 'auto', 'local' or HOST:PORT of a cluster that this machine belongs to",
)
VIDEO = matching(r".*[^/]\.(mp4|gif|MP4|GIF)", "must be a file whose name ends in .mp4 or .gif")
EXPORT = matching(r".*[^/]\.onnx", "must be a file whose name ends in .onnx")
WORKERS = Check(
    lambda value: value == "auto" or 0 <= value <= 100_000,
    "must be 'auto', 0 (no worker processes) or the number of processes, at most 100000",
)


def option(
    default: Any,
    help: str,  # noqa: A002 (the word that argparse uses)
    check: Check | None = None,
    *,
    group: str,
    shown: str | None = None,
    algorithm: bool = False,
    saved: bool = True,
) -> Any:
    """Return a field of `Config`.

    check: of values other than None. shown: the default in words. algorithm: whether the setting
    decides on the result, so that a resumed run keeps it. saved: whether it belongs to the run, not
    to one command alone.
    """
    metadata = {
        "group": group, "help": help, "check": check, "shown": shown, "algorithm": algorithm,
        "saved": saved,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


task = partial(option, group="task", algorithm=True)
policy = partial(option, group="policy", algorithm=True)
algorithm = partial(option, group="algorithm", algorithm=True)
ending = partial(option, group="ending")
evaluation = partial(option, group="evaluation")
run = partial(option, group="run")
watching = partial(option, group="watching", saved=False)


@dataclass(frozen=True)
class Config:
    """Train control policies with Evolution Strategies, or play a trained one."""

    env_name: str = task("PongDeterministic-v4", "Gymnasium environment id.", NOT_EMPTY)
    env_kwargs: tuple[str, ...] = task(
        (), "Arguments of the environment, such as continuous=True.", ASSIGNMENTS
    )
    env_wrapper: tuple[str, ...] = task(
        (),
        "Wrapper, MODULE:CALLABLE and its arguments, such as gymnasium.wrappers:FilterObservation "
        "filter_keys=['image']. Repeat it for more, the innermost first.",
        WRAPPERS,
    )
    max_episode_length: int = task(100_000, "Steps per episode at most.", LIMIT)
    training_ep_len: int | None = task(
        None,
        "Steps of a perturbation's episode at most. The policy itself plays to the end.",
        LIMIT,
        shown="--max-episode-length",
    )
    variable_ep_len: bool = task(
        False, "After each update, cap perturbations' episodes at twice the batch's mean length."
    )
    adaptive_ep_len: bool = task(
        False,
        "Cap training episodes at twice the mean length so far, and raise the cap by half when "
        "many reach it. The unperturbed policy plays to the end.",
    )
    frame_skip: int | None = task(
        None,
        "Repeat each action for this many steps (of an Atari game: frames).",
        REPEATS,
        shown="1; Atari games have their own",
    )
    noop_max: int = task(0, "Atari: begin episodes with up to this many random no-ops.", NOOPS)
    fire_reset: bool = task(False, "Atari: begin each life with FIRE and the action after it.")
    sticky_actions: float | None = task(
        None,
        "Atari: probability that the emulator repeats the previous action.",
        PROBABILITY,
        shown="the game's own",
    )
    reward_shift: float = task(
        0.0, "Subtract this from each step's reward in training, such as an alive bonus.", AMOUNT
    )
    reward_clip: tuple[float, ...] = task(
        (), "Clip each step's reward to LOW HIGH in training. Scores stay the task's.", ASCENDING
    )

    small_net: bool = policy(
        False, "Use the small MLP instead of the Convnet-LSTM.", algorithm=False
    )
    net: str | None = policy(None, "Custom network, a torch.nn.Module: MODULE:CLASS.", MODULE_CLASS)
    net_kwargs: tuple[str, ...] = policy((), "Arguments of --net, such as width=64.", ASSIGNMENTS)
    hidden_sizes: tuple[int, ...] = policy(
        (64, 64), "Units of the MLP's hidden layers. Nothing for a linear policy.", WIDTHS
    )
    activation: Literal["selu", "tanh", "relu"] = policy(
        "selu", "Activation of the MLP's hidden layers."
    )
    obs_norm: bool = policy(
        False, "Normalise observations by their running mean and standard deviation (MLP)."
    )
    obs_clip: float = policy(
        5.0, "Clip normalised observations at this many standard deviations. 0: no clip.", STRENGTH
    )
    obs_std_floor: float = policy(
        0.0, "Smallest standard deviation that observations are divided by.", STRENGTH
    )
    squash: Literal["tanh", "clip"] = policy(
        "tanh",
        "How outputs become continuous actions: tanh scaled to their bounds, or clipped to them.",
    )
    vbn: bool = policy(False, "Virtual batch normalisation (Convnet-LSTM).")
    action_bins: int | None = policy(
        None, "Choose continuous actions among this many evenly spaced values per dimension.", BINS
    )
    init: Literal["torch", "zero"] = policy(
        "torch", "First parameters: torch's default initialisation, or zero (linear policies)."
    )
    sample_actions: bool = policy(
        False,
        "Draw Discrete and MultiDiscrete actions by the softmax of the outputs, instead of taking "
        "the largest.",
    )
    action_noise: float = policy(
        0.0,
        "Standard deviation of noise on continuous actions in training, in their own units.",
        STRENGTH,
    )

    n: int = algorithm(
        40, "Batch size: perturbations per update (even, for mirrored pairs).", BATCH
    )
    frames_per_update: int | None = algorithm(
        None,
        "Ask for further perturbations until an update's episodes have this many steps.",
        between(1, 10**12),
    )
    n_max: int | None = algorithm(
        None,
        "Perturbations per update at most, with --frames-per-update.",
        BATCH,
        shown="ten times --n",
    )
    sigma: float = algorithm(0.05, "Standard deviation of the perturbations.", SCALE)
    sigma_decay: float = algorithm(1.0, "Factor of sigma after each update.", FRACTION)
    sigma_min: float | None = algorithm(None, "Smallest sigma that --sigma-decay may reach.", SCALE)
    sigma_adapt: bool = algorithm(False, "Adapt a sigma for each parameter, as PGPE does.")
    sigma_lr: float = algorithm(0.1, "Learning rate of --sigma-adapt.", SCALE)
    lr: float | None = algorithm(
        None, "Learning rate.", SCALE, shown="0.1; with clipup 3/4 of --max-speed"
    )
    lr_decay: float = algorithm(1.0, "Factor of the learning rate after each update.", FRACTION)
    lr_schedule: Literal["constant", "linear", "cosine"] = algorithm(
        "constant", "Course of the learning rate, down to 0 after --max-gradient-updates."
    )
    optimizer: Literal["sgd", "adam", "adamw", "clipup"] = algorithm(
        "sgd", "Optimiser that takes the step. --useAdam is the same as --optimizer adam."
    )
    momentum: float = algorithm(0.0, "Momentum of --optimizer sgd.", BELOW_ONE)
    max_speed: float | None = algorithm(None, "Longest step of --optimizer clipup.", SCALE)
    weight_decay: float = algorithm(
        0.0, "Weight decay: L2 in the gradient, decoupled with adamw and clipup.", STRENGTH
    )
    sampling: Literal["antithetic", "gaussian"] = algorithm(
        "antithetic", "Mirrored pairs of perturbations, or independent ones."
    )
    shaping: Literal["nes", "centered-rank", "normalized", "raw"] = algorithm(
        "nes", "Fitness shaping: how returns become utilities."
    )
    top_directions: int | None = algorithm(
        None, "Use only this many pairs, those with the best better member.", COUNT, shown="all"
    )
    episodes_per_perturbation: int = algorithm(
        1, "Episodes of each perturbation, whose mean return counts.", COUNT
    )
    episode_seeding: Literal["pair", "update", "independent"] = algorithm(
        "pair",
        "Which perturbations play the same episodes: both of a pair, all of an update, or none.",
    )
    param_fraction: float = algorithm(
        1.0, "Each perturbation changes this fraction of the parameters.", FRACTION
    )
    seed: int | None = algorithm(
        None,
        "Seed of everything random. With --test: of the episodes.",
        SEED,
        shown="drawn, printed and saved; with --test: the run's evaluation episodes",
    )
    phase: tuple[dict, ...] = algorithm(
        (), "In a settings file, [[phase]] tables: settings that change in the course of a run."
    )

    max_gradient_updates: int = ending(
        100_000, "Updates at most, counted from the run's first.", LIMIT
    )
    max_frames: int | None = ending(
        None,
        "End after this many steps of perturbed episodes, counted from the run's first.",
        LIMIT,
    )
    max_minutes: float | None = ending(
        None,
        "End after this many minutes of training, including those before a --restore.",
        POSITIVE,
    )
    target_return: float | None = ending(
        None, "End when two evaluations of --eval-episodes reach this mean return.", AMOUNT
    )

    eval_episodes: int = evaluation(20, "Episodes of one evaluation.", COUNT)
    eval_every: int | None = evaluation(
        None, "Evaluate every K updates. The evaluation then decides on best.safetensors.", LIMIT
    )

    workers: int | Literal["auto"] | None = run(
        None,
        "Worker processes. 'auto': one per core. 0: play in this process.",
        WORKERS,
        shown="one per perturbation and one for the unperturbed parameters",
    )
    rollout_timeout: float | None = run(
        None,
        "Replace a worker process whose episode takes longer than this many seconds.",
        POSITIVE,
    )
    ray: str | None = run(
        None,
        "Play on a Ray cluster: HOST:PORT, 'auto' (the cluster of this machine) or 'local' (a Ray "
        "started here). --workers is then per node.",
        RAY,
        saved=False,
    )
    ray_timeout: float = run(
        120.0,
        "End when the cluster has had no worker for this many seconds.",
        POSITIVE,
        saved=False,
    )
    run_dir: str | None = run(
        None, "Directory of the run.", NOT_EMPTY, shown="checkpoints/ENV_NAME"
    )
    save_every: int | None = run(None, "Also keep update-<K>.safetensors every K updates.", LIMIT)
    video_every: int | None = run(
        None, "Record an episode of the policy every K updates, into videos/.", LIMIT
    )
    wandb: bool = run(
        False, "Report to Weights & Biases, too (WANDB_MODE=offline: no network).", saved=False
    )
    silent: bool = run(
        False, "Print only warnings, errors and the last line (with --test: the summary)."
    )
    log_every: float = run(
        1.0,
        "Without a terminal, seconds between lines of figures. 0: a full block per update.",
        between(0, 10**6),
        saved=False,
    )
    config: str | None = run(
        None,
        "TOML file with settings, or the name of a shipped one, such as CartPole-v1.",
        saved=False,
    )
    restore: str = run(
        "", "Checkpoint to start from, or a run's directory: its latest one (--test: all)."
    )
    override: bool = run(False, "Let flags change a restored run's algorithm settings.")
    trust: bool = run(
        False,
        "Import the modules that the checkpoint names: its environment, wrappers and network.",
        saved=False,
    )

    test: bool = watching(False, "Play the restored policy instead of training.")
    episodes: int | None = watching(
        None,
        "Episodes to play with --test.",
        COUNT,
        shown="until the window closes; 10 with --no-render; 1 with --video",
    )
    no_render: bool = watching(False, "With --test: open no window.")
    greedy: bool = watching(
        False, "With --test: play the largest outputs of a policy that draws its actions."
    )
    video: str | None = watching(
        None, "With --test: record the episodes as this .mp4 or .gif.", VIDEO
    )
    json: bool = watching(False, "With --test: print one line of JSON. Implies --no-render.")
    stochastic_start: int | None = watching(
        None,
        "With --test: begin episodes with up to this many no-ops (Atari) or random actions.",
        REPEATS,
    )
    export: str | None = watching(
        None,
        "Write the restored policy as an ONNX file, which needs nothing of this program.",
        EXPORT,
    )
    list_envs: tuple[str, ...] | None = watching(
        None,
        "List the names of all environments, or those that contain one of these words or are of a "
        "module (MODULE:), and the settings files for them, then end.",
    )
    version: bool = watching(False, "Print the version, then end.")

    @property
    def mode(self) -> str:
        """Return what the command does: train, test or export."""
        return "test" if self.test else "export" if self.export else "train"

    @property
    def step_size(self) -> float:
        """Return the learning rate: --lr, or its default for the optimiser."""
        if self.lr is not None:
            return self.lr
        return 0.75 * self.max_speed if self.max_speed else 0.1

    @property
    def user_modules(self) -> dict[str, tuple[str, ...]]:
        """Return the settings that name modules of the user's, by field, as words."""
        later = (word for table in self.phase for word in table.get("env_wrapper", ()))
        words = {
            "env_name": (self.env_name,) if ":" in self.env_name else (),
            "env_wrapper": _unless_of_gymnasium(self.env_wrapper),
            "net": (self.net,) if self.net else (),
            "phase": _unless_of_gymnasium(tuple(later)),
        }
        return {name: named for name, named in words.items() if named}

    @property
    def flags_to_restore(self) -> list[str]:
        """Return the flags that a command needs beside --restore to play this run.

        What a script has defined is in no module yet: MODULE stands for that.
        """
        flags = ["--trust"] if self.user_modules else []
        for name, words in self.user_modules.items():
            if name != "phase" and any(word.startswith("__main__:") for word in words):
                flags += [flag(name), *(word.replace("__main__:", "MODULE:") for word in words)]
        return flags

    def canonical(self, name: str) -> Any:
        """Return a setting in one form: settings with the same effect are equal."""
        return self.step_size if name == "lr" else getattr(self, name)

    def in_phase(self, number: int) -> "Config":
        """Return these settings under those of a phase, which are counted from 0.

        Raise UsageError if a setting is wrong.
        """
        table = self.phase[number].items()
        changed = {name: value for name, value in table if name not in PHASE_STARTS}
        return self.under(changed, f"[[phase]] {number + 1}")

    def under(self, changes: Mapping[str, Any], source: str = "") -> "Config":
        """Return these settings under `changes`, without those that the changes contradict.

        source: of the changes, for messages. Raise UsageError if a setting is wrong.
        """
        return settle((vars(self), changes), ("", source))

    def hyperparameters(self) -> dict[str, bool | float | str | None]:
        """Return the settings of the algorithm as cells of a table, for comparing runs."""
        values = {name: self.canonical(name) for name in ALGORITHM}
        return {n: shown(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def saved(self) -> dict[str, Any]:
        """Return the settings that belong to the run, by field name, without unset ones."""
        values = {f.name: getattr(self, f.name) for f in FIELDS.values() if f.metadata["saved"]}
        if not self.restore:
            values.pop("override")  # or the file could override another run's settings
        return {name: value for name, value in values.items() if value not in (None, "")}

    def broken_rules(self) -> Iterator[Rule]:  # noqa: PLR0912, PLR0915 (a branch for each)
        """Yield the rules between settings that are broken."""
        mirrored = self.sampling == "antithetic"
        if mirrored and self.n % 2 == 1:
            message = f"--n {self.n} must be even, or give --sampling gaussian"
            yield Rule(message, ("n", "sampling"))
        if (self.optimizer == "clipup") != (self.max_speed is not None):
            message = "--optimizer clipup and --max-speed, its longest step, go together. Give both"
            yield Rule(message, ("max_speed", "optimizer"), yielding=("max_speed",))
        if self.momentum and self.optimizer != "sgd":
            message = f"--momentum {self.momentum} applies only to --optimizer sgd. Remove it"
            yield Rule(message, ("momentum", "optimizer"), yielding=("momentum",))
        pairs = ("top_directions", "sigma_adapt")
        if not mirrored and (self.sigma_adapt or self.top_directions is not None):
            message = "--top-directions and --sigma-adapt compare pairs, and --sampling gaussian "
            yield Rule(message + "has none. Remove one", (*pairs, "sampling"), yielding=pairs)
        if self.sigma_adapt and (self.top_directions is not None or self.param_fraction < 1):
            message = "--sigma-adapt compares all pairs in every parameter. Remove "
            message += "--top-directions and --param-fraction"
            names = ("sigma_adapt", "top_directions", "param_fraction")
            yield Rule(message, names, yielding=names)
        if mirrored and (self.top_directions or 0) > self.n // 2:
            message = f"--top-directions {self.top_directions} must be at most half of --n {self.n}"
            yield Rule(message, ("top_directions", "n"))
        if (self.sigma_min or 0) > self.sigma:
            message = f"--sigma-min {self.sigma_min} must be at most --sigma {self.sigma}"
            yield Rule(message, ("sigma_min", "sigma"))
        if self.n_max and (self.n_max < self.n or (mirrored and self.n_max % 2 == 1)):
            even = ", and even" if mirrored else ""
            message = f"--n-max {self.n_max} must be at least --n {self.n}{even}"
            yield Rule(message, ("n_max", "n", "sampling"))
        if self.init == "zero" and self.hidden_sizes:
            message = "--init zero is for linear policies. Give --hidden-sizes with no values"
            yield Rule(message, ("init", "hidden_sizes"), yielding=("init",))
        if self.squash == "clip" and self.action_bins is not None:
            message = f"--squash clip has no effect with --action-bins {self.action_bins}. Give one"
            yield Rule(message, ("squash", "action_bins"), yielding=("squash", "action_bins"))
        caps = ("training_ep_len", "variable_ep_len", "adaptive_ep_len")
        if sum(getattr(self, name) not in (None, False) for name in caps) > 1:
            message = f"{', '.join(map(flag, caps))} choose the same cap. Give one of them"
            yield Rule(message, caps, yielding=caps)
        if self.ray is not None and self.workers == 0:
            message = f"--ray {self.ray} plays on a cluster, --workers 0 in this process. Give one"
            yield Rule(message, ("ray", "workers"), yielding=("workers",))
        if self.rollout_timeout is not None and self.workers == 0:
            message = "--rollout-timeout replaces worker processes, and --workers 0 has none. "
            timed = ("rollout_timeout", "workers")
            yield Rule(message + "Give one of them", timed, yielding=timed)
        if self.mode != "train" and not self.restore:
            message = f"--{self.mode} needs --restore CHECKPOINT, the policy"
            yield Rule(message, ("test", "export"))
        if self.test and self.export is not None:
            message = f"--test and --export {self.export} are two commands. Give one of them"
            yield Rule(message, ("test", "export"))


PHASE_STARTS = {"after_updates": int, "after_frames": int, "after_return": float}
OF_OUR_NETWORKS = ("small_net", "hidden_sizes", "activation", "init", "vbn")  # not for --net
NEEDS = {  # settings that have no effect without another one
    "net_kwargs": "net", "obs_clip": "obs_norm", "obs_std_floor": "obs_norm",
    "n_max": "frames_per_update", "sigma_lr": "sigma_adapt", "sigma_min": "sigma_decay",
    "lr_schedule": "max_gradient_updates", "ray_timeout": "ray",
    "episodes": "test", "no_render": "test", "greedy": "test", "video": "test", "json": "test",
    "stochastic_start": "test",
}  # fmt: skip
FIELDS = {field.name: field for field in dataclasses.fields(Config)}
ALGORITHM = [name for name, field in FIELDS.items() if field.metadata["algorithm"]]
# What the policy is made of, and what the run is, has no phases.
IN_PHASES = [
    name
    for name, field in FIELDS.items()
    if (field.metadata["group"] in ("task", "algorithm") or name == "action_noise")
    and name not in ("env_name", "seed", "phase")
]
OTHER_NAMES = {  # of other trainers' flags
    "env": "env_name", "env_id": "env_name", "learning_rate": "lr", "step_size": "lr",
    "popsize": "n", "population_size": "n", "batch_size": "n", "noise_std": "sigma",
    "total_timesteps": "max_frames", "iterations": "max_gradient_updates",
    "generations": "max_gradient_updates", "n_envs": "workers", "num_workers": "workers",
    "logdir": "run_dir", "checkpoint": "restore", "resume": "restore",
    "policy_kwargs": "net_kwargs", "use_adam": "optimizer",
}  # fmt: skip


# ---- names and values ----


def flag(name: str) -> str:
    """Return a field's flag: `lr_decay` -> `--lr-decay`."""
    return "--" + name.replace("_", "-")


def shown(value: Any) -> str:
    """Return a value as it is written after its flag."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def flag_with_value(name: str, value: Any) -> str:
    """Return a setting as on a command line: `--lr 0.1`, `--small-net`, `--no-small-net`."""
    if name == "phase":
        return "[[phase]]"  # of a file
    if value is False:
        return f"--no-{flag(name)[2:]}"
    return flag(name) if value is True else f"{flag(name)} {shown(value)}".rstrip()


def default_in_words(field: dataclasses.Field) -> str:
    """Return the default of a setting, for its help text."""
    if field.metadata["shown"]:
        return field.metadata["shown"]
    if field.default in (None, (), ""):
        return "none"
    return "off" if field.default is False else shown(field.default)


def check_value(place: str, value: Any, check: Check | None) -> None:
    """Raise UsageError, which begins with `place`, if a value is not finite or fails its check."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place} {value} must be a finite number")
    if value is not None and check is not None and not check.passes(value):
        text = shown(value) if isinstance(value, tuple) else repr(value)
        raise UsageError(f"{place} {text:.{LONGEST_VALUE}} {check.words}")


def settle(layers: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> Config:
    """Merge layers of settings over the defaults; later layers win.

    A setting drops those that it contradicts in lower layers. sources: the names of the layers, for
    messages. Raise UsageError if a value is wrong, or a rule between settings is still broken.
    """
    values: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    for rank, (layer, source) in enumerate(zip(layers, sources, strict=True)):
        for name, value in layer.items():
            place = f"{source}: {flag(name)}" if source else flag(name)
            check_value(place, value, FIELDS[name].metadata["check"])
            values[name], ranks[name] = value, rank
    while rule := next(Config(**values).broken_rules(), None):
        highest = max(ranks.get(name, -1) for name in rule.settings)
        lower = [name for name in rule.yielding if name in values and ranks[name] < highest]
        for name in lower:
            del values[name]
            ranks[name] = highest
        if not lower:
            places = [
                f"{flag_with_value(name, value)} is from {sources[ranks[name]]}"
                for name in rule.settings
                if (value := values.get(name)) not in (None, FIELDS[name].default)
                and sources[ranks[name]]
            ]
            raise UsageError("; ".join([rule.message, *places]))
    return Config(**values)


def require_needed(settings: Mapping[str, Any], config: Config, place: str = "") -> None:
    """Raise UsageError, which begins with `place`, for a setting without the one that it needs.

    settings: those to check, by field name. config: what they lead to.
    """
    for name, value in settings.items():
        needed = NEEDS.get(name)
        if not needed or value in (None, FIELDS[name].default):
            continue
        if not settings.get(needed) and getattr(config, needed) == FIELDS[needed].default:
            raise UsageError(
                f"{place}{flag(name)} applies only with {flag(needed)}. Give both, or neither"
            )


def _unless_of_gymnasium(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of --env-wrapper, or nothing if all wrappers are Gymnasium's own."""
    wrappers = filter(is_callable_name, words)
    return words if any(not word.startswith("gymnasium.wrappers:") for word in wrappers) else ()


# ---- types ----


class Kind(NamedTuple):
    """The type of a setting.

    scalar: of the value, or of a list's items. choices: words that the value may be, too.
    """

    scalar: type | None
    choices: tuple[str, ...]
    is_list: bool
    is_optional: bool

    @classmethod
    def of(cls, annotation: Any) -> "Kind":
        """Return the kind that a field's annotation stands for."""
        is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
        scalar, choices, is_list, is_optional = None, (), False, False
        for part in typing.get_args(annotation) if is_union else (annotation,):
            if typing.get_origin(part) is Literal:
                choices = typing.get_args(part)
            elif typing.get_origin(part) is tuple:
                scalar, is_list = typing.get_args(part)[0], True
            elif part is types.NoneType:
                is_optional = True
            else:
                scalar = part
        return cls(scalar, choices, is_list, is_optional)

    def __str__(self) -> str:
        words = [WORDS[self.scalar]] if self.scalar else []
        text = " or ".join([*words, *map(repr, self.choices)])
        return f"a list of {text.removeprefix('a ')}s" if self.is_list else text

    @property
    def metavar(self) -> str:
        """Return the placeholder of a value in the help text."""
        words = [METAVARS[self.scalar]] if self.scalar in METAVARS else []
        if self.choices:
            words.append("{" + ",".join(self.choices) + "}")
        return "|".join(words)

    def parse(self, word: str) -> Any:
        """Return the value, or the item of a list, that a word of the command line stands for."""
        if word in self.choices:
            return word
        if word == "None" and self.is_optional and not self.is_list:
            return None
        with suppress(ValueError):
            if self.scalar:
                return self.scalar(word)
        separated = ", separated by spaces" if self.is_list else ""
        raise argparse.ArgumentTypeError(f"{word!r:.{LONGEST_VALUE}} must be {self}{separated}")

    def convert(self, value: Any) -> Any:
        """Return a value of TOML, JSON or Python as the setting has it; raise ValueError."""
        if value in (None, "None") and self.is_optional:
            return None
        if not self.is_list:
            return self._convert_item(value)
        if isinstance(value, list | tuple):
            return tuple(map(self._convert_item, value))
        raise ValueError(f"must be {self}")

    def _convert_item(self, value: Any) -> Any:
        if type(value) is self.scalar or (isinstance(value, str) and value in self.choices):
            return value
        if self.scalar is float and type(value) is int and abs(value) < 2**1000:
            return float(value)
        raise ValueError(f"must be {self}")


METAVARS = {int: "INT", float: "FLOAT", str: "TEXT"}
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "a table",
}
KINDS = {name: Kind.of(field.type) for name, field in FIELDS.items()}
KEYS = {word: name for name in FIELDS for word in (flag(name)[2:], name)}
USE_ADAM = ("useAdam", "use_adam")  # keys for --optimizer adam: pytorch-es's, and that of old files


# ---- settings as a mapping ----


def field_name(key: str, source: str) -> str:
    """Return the field of a key, which is spelled as the flag or as the field.

    Raise UsageError, with `source`, for an unknown key.
    """
    if key not in KEYS:
        name = key.replace("-", "_")
        meant = OTHER_NAMES.get(name)
        hint = f"; did you mean {meant}?" if meant else suggest(name, FIELDS)
        raise UsageError(f"{source}: unknown setting {key!r}{hint}")
    return KEYS[key]


def from_mapping(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return settings by field name, from keys spelled as flags or as fields.

    Raise UsageError, with `source`, for an unknown key or a value of the wrong type.
    """
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key in USE_ADAM:
            values |= {"optimizer": "adam"} if _convert(key, value, Kind.of(bool), source) else {}
            continue
        name = field_name(key, source)
        values[name] = _convert(key, value, KINDS[name], source)
    if "phase" in values:
        values["phase"] = tuple(_phase(table, source) for table in values["phase"])
    return values


def _convert(key: str, value: Any, kind: Kind, source: str) -> Any:
    try:
        return kind.convert(value)
    except ValueError as error:
        raise UsageError(f"{source}: {key} = {value!r:.{LONGEST_VALUE}} {error}") from error


def _phase(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a [[phase]] table by field name: when the phase begins, and what it changes."""
    source = f"{source}: [[phase]]"
    keys = {key: word for key in table if (word := key.replace("-", "_")) in PHASE_STARTS}
    if not keys:
        raise UsageError(
            f"{source} needs after-updates, after-frames or after-return, which say when it begins"
        )
    starts = {}
    for key, start in keys.items():
        starts[start] = _convert(key, table[key], Kind.of(PHASE_STARTS[start]), source)
        check_value(f"{source}: {key}", starts[start], None)
    settings = from_mapping({k: v for k, v in table.items() if k not in keys}, source)
    for name in settings:
        if name not in IN_PHASES:
            raise UsageError(f"{source}: {flag(name)[2:]} cannot change in the course of a run")
    return starts | settings


def read_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of KEY=VALUE words by key, read as Python or JSON, or else as strings."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        values[key] = text
        for parse in (ast.literal_eval, json.loads):
            with suppress(Exception):  # literal_eval raises many kinds
                value = parse(text)
                json.dumps(value, allow_nan=False)  # plain types only, since a checkpoint holds it
                values[key] = value
                break
    return values


def read_wrappers(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return what --env-wrapper names: {"name": "MODULE:CALLABLE", "kwargs": {...}} each."""
    starts = [place for place, word in enumerate(words) if is_callable_name(word)]
    return [
        {"name": words[start], "kwargs": read_assignments(words[start + 1 : stop])}
        for start, stop in pairwise([*starts, len(words)])
    ]
