"""What is learned, and how: the settings that decide what is computed, which resuming keeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from es.config.option import (
    AMOUNT,
    ASSIGNMENTS,
    BELOW_ONE,
    FRACTION,
    NOOPS,
    NOT_EMPTY,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    REPEATS,
    SCALE,
    STRENGTH,
    TWO_OR_MORE,
    WIDTHS,
    option,
)

task = partial(option, group="task", algorithm=True)
policy = partial(option, group="policy", algorithm=True)
algorithm = partial(option, group="algorithm", algorithm=True)


@dataclass(frozen=True)
class Learning:
    """Task, policy and algorithm."""

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
