"""Every setting of the trainer: its default, help text and validation, in one frozen dataclass.

Nothing heavy is imported in this package, so that `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from es.config.option import (
    AMOUNT,
    ASSIGNMENTS,
    BELOW_ONE,
    COUNT,
    FRACTION,
    NOOPS,
    NOT_EMPTY,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    RAY,
    REPEATS,
    SCALE,
    STRENGTH,
    TWO_OR_MORE,
    WIDTHS,
    WORKERS,
    option,
)

# The first three decide what is computed, so that a resumed run keeps them.
task = partial(option, group="task", algorithm=True)
policy = partial(option, group="policy", algorithm=True)
algorithm = partial(option, group="algorithm", algorithm=True)
run = partial(option, group="run")


@dataclass(frozen=True)
class Config:
    """Train control policies with Evolution Strategies, or watch a trained one."""

    env_name: str = task("PongDeterministic-v4", help="Gymnasium environment id.", check=NOT_EMPTY)
    env_kwargs: tuple[str, ...] = task(
        (),
        help="Arguments of the environment, such as continuous=True.",
        check=ASSIGNMENTS,
        shown="none",
    )
    max_episode_length: int = task(100_000, help="Steps per episode at most.", check=POSITIVE)
    variable_ep_len: bool = task(
        False, help="After each update, cap training episodes at twice the batch's mean length."
    )
    adaptive_ep_len: bool = task(
        False,
        help="Cap training episodes at twice the mean length so far; when many reach the cap, "
        "raise it by half.",
    )
    frame_skip: int | None = task(
        None,
        help="Repeat each action for so many steps or, of an Atari game, frames.",
        check=REPEATS,
        shown="1; Atari games have their own",
    )
    noop_max: int = task(
        0, help="Atari: begin episodes with up to so many random no-ops.", check=NOOPS
    )
    sticky_actions: float | None = task(
        None,
        help="Atari: probability that the emulator repeats the previous action.",
        check=PROBABILITY,
        shown="the game's own",
    )
    reward_shift: float = task(
        0.0,
        help="Subtract this from each step's reward for training, such as an alive bonus.",
        check=AMOUNT,
    )

    small_net: bool = policy(False, help="Use the small MLP instead of the Convnet-LSTM.")
    hidden_sizes: tuple[int, ...] = policy(
        (64, 64), help="Units of the MLP's hidden layers; nothing for a linear policy.",
        check=WIDTHS,
    )  # fmt: skip
    activation: Literal["selu", "tanh", "relu"] = policy(
        "selu", help="Activation of the MLP's hidden layers."
    )
    obs_norm: bool = policy(
        False, help="Normalise observations by their running mean and standard deviation (MLP)."
    )
    vbn: bool = policy(False, help="Virtual batch normalisation (Convnet-LSTM).")
    action_bins: int | None = policy(
        None,
        help="Choose continuous actions among so many evenly spread values per dimension.",
        check=TWO_OR_MORE,
        shown="off",
    )
    action_noise: float = policy(
        0.0,
        help="Standard deviation of noise on continuous actions in training, in their own units.",
        check=STRENGTH,
    )

    n: int = algorithm(
        40, help="Batch size: perturbations per update (even, for mirrored pairs).",
        check=TWO_OR_MORE,
    )  # fmt: skip
    sigma: float = algorithm(0.05, help="Standard deviation of the perturbations.", check=SCALE)
    sigma_decay: float = algorithm(
        1.0, help="Sigma is multiplied by it after each update.", check=FRACTION
    )
    sigma_min: float | None = algorithm(
        None, help="Where --sigma-decay ends.", check=SCALE, shown="no limit"
    )
    lr: float = algorithm(0.1, help="Learning rate.", check=SCALE)
    lr_decay: float = algorithm(
        1.0, help="The learning rate is multiplied by it after each update.", check=SCALE
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = algorithm(
        "constant", help="Course of the learning rate, down to 0 after --max-gradient-updates."
    )
    optimizer: Literal["sgd", "adam", "adamw"] | None = algorithm(
        None, help="Optimiser that takes the step.", shown="sgd"
    )
    use_adam: bool = algorithm(False, help="The same as --optimizer adam.", name="useAdam")
    momentum: float = algorithm(0.0, help="Momentum of SGD.", check=BELOW_ONE)
    weight_decay: float = algorithm(
        0.0, help="Weight decay: L2 in the gradient, decoupled with adamw.", check=STRENGTH
    )
    sampling: Literal["antithetic", "gaussian"] = algorithm(
        "antithetic", help="Perturbations in mirrored pairs, or each with noise of its own."
    )
    shaping: Literal["nes", "centered-rank", "normalized", "raw"] = algorithm(
        "nes", help="Fitness shaping: how returns become utilities."
    )
    top_directions: int | None = algorithm(
        None,
        help="Learn from so many pairs only: those with the best better member.",
        check=POSITIVE,
        shown="all",
    )
    episodes_per_perturbation: int = algorithm(
        1, help="Episodes whose mean return is a perturbation's.", check=POSITIVE
    )
    episode_seeding: Literal["pair", "update", "independent"] = algorithm(
        "pair",
        help="Who plays the same episodes: perturbations by the same noise, all of an update, "
        "or none.",
    )
    param_fraction: float = algorithm(
        1.0, help="Each perturbation changes this fraction of the parameters.", check=FRACTION
    )
    seed: int | None = algorithm(
        None,
        help="Seed of everything random. With --test: of the episodes.",
        check=NOT_NEGATIVE,
        shown="drawn, printed and saved; with --test: the run's evaluation episodes",
    )

    max_gradient_updates: int = option(
        100_000, "ending", "Updates at most, counted from the run's first.", POSITIVE
    )
    max_frames: int | None = option(
        None, "ending", "End after this many training steps.", POSITIVE, shown="no limit"
    )
    max_minutes: float | None = option(
        None, "ending", "End after this many minutes of training.", POSITIVE, shown="no limit"
    )
    target_return: float | None = option(
        None,
        "ending",
        "End as soon as the policy's mean return over --eval-episodes reaches this.",
        shown="none",
    )

    eval_episodes: int = option(20, "evaluation", "Episodes of one evaluation.", COUNT)
    eval_every: int | None = option(
        None,
        "evaluation",
        "Evaluate after every so many updates; best.pth then goes by the evaluation.",
        POSITIVE,
        shown="off",
    )

    workers: int | Literal["auto"] | None = run(
        None,
        help="Worker processes; 'auto' is one per core, 0 plays in this process.",
        check=WORKERS,
        shown="one per perturbation and one for the unperturbed parameters",
    )
    rollout_timeout: float | None = run(
        None,
        help="Replace a worker process whose episode takes longer than so many seconds.",
        check=POSITIVE,
        shown="off",
    )
    ray: str | None = run(
        None,
        help="Play on a Ray cluster: HOST:PORT, 'auto' (the one of this machine) or 'local' (a Ray "
        "started here); --workers is then per node.",
        check=RAY,
        shown="off",
        saved=False,
    )
    ray_timeout: float = run(
        120.0, help="End when Ray had no worker for so many seconds.", check=POSITIVE, saved=False
    )
    run_dir: str | None = option(
        None, "run", "Directory of the run.", NOT_EMPTY, shown="checkpoints/<env-name>"
    )
    save_every: int | None = option(
        None, "run", "Also keep update-<K>.pth every so many updates.", POSITIVE, shown="off"
    )
    silent: bool = option(False, "run", "Print nothing but errors and the last line.")
    config: str | None = option(
        None, "run", "TOML file with settings; flags go before it.", shown="none", saved=False
    )
    restore: str = option("", "run", "Checkpoint to start from.", shown="none")
    override: bool = option(False, "run", "Let flags change a restored run's algorithm settings.")

    test: bool = option(
        False, "watching", "Play the restored policy instead of training.", saved=False
    )
    episodes: int | None = option(
        None,
        "watching",
        "Episodes to play with --test.",
        POSITIVE,
        shown="until the window closes; 10 with --no-render",
        saved=False,
    )
    no_render: bool = option(False, "watching", "With --test: open no window.", saved=False)

    @property
    def optimizer_name(self) -> str:
        """The optimiser, whichever flag it was chosen with."""
        return self.optimizer or ("adam" if self.use_adam else "sgd")

    def saved(self) -> dict[str, Any]:
        """The settings that belong to the run, as plain types; unset ones are left out."""
        values = {f.name: getattr(self, f.name) for f in FIELDS.values() if f.metadata["saved"]}
        if not self.restore:
            values.pop("override")  # which would let the file override another run's settings
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value not in (None, "")
        }


FIELDS = {field.name: field for field in dataclasses.fields(Config)}
TYPES = typing.get_type_hints(Config)


def flag(name: str) -> str:
    """A field's flag: `lr_decay` -> `--lr-decay`."""
    return "--" + (FIELDS[name].metadata["name"] or name.replace("_", "-"))
