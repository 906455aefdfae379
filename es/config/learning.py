"""Settings that decide what is computed; a resumed run keeps them."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from es.config import option

task = partial(option.option, group="task", algorithm=True)
policy = partial(option.option, group="policy", algorithm=True)
algorithm = partial(option.option, group="algorithm", algorithm=True)

LR, STEP_OF_SPEED = 0.1, 0.75  # defaults: the second is a share of --max-speed, of clipup


@dataclass(frozen=True)
class AlgorithmSettings:
    """Settings of the task, the policy and the algorithm."""

    env_name: str = task("PongDeterministic-v4", "Gymnasium environment id.", option.NOT_EMPTY)
    env_kwargs: tuple[str, ...] = task(
        (),
        "Arguments of the environment, such as continuous=True.",
        option.ASSIGNMENTS,
        shown="none",
    )
    env_wrapper: tuple[str, ...] = task(
        (),
        "Wrapper of the environment, MODULE:CALLABLE and its arguments, such as "
        "gymnasium.wrappers:FilterObservation filter_keys=['image']; repeat it for more, the "
        "innermost first.",
        option.WRAPPERS,
        shown="none",
    )
    max_episode_length: int = task(100_000, "Steps per episode at most.", option.LIMIT)
    training_ep_len: int | None = task(
        None,
        "Cap training episodes at so many steps; the unperturbed policy's, and those of "
        "evaluations, go on.",
        option.LIMIT,
        shown="--max-episode-length",
    )
    variable_ep_len: bool = task(
        False,
        "After each update, cap training episodes at twice the batch's mean length; the "
        "unperturbed policy's go on.",
    )
    adaptive_ep_len: bool = task(
        False,
        "Cap training episodes at twice the mean length so far; when many reach the cap, "
        "raise it by half. The unperturbed policy's go on.",
    )
    frame_skip: int | None = task(
        None,
        "Repeat each action for so many steps or, of an Atari game, frames.",
        option.REPEATS,
        shown="1; Atari games have their own",
    )
    noop_max: int = task(0, "Atari: begin episodes with up to so many random no-ops.", option.NOOPS)
    fire_reset: bool = task(False, "Atari: begin each life with FIRE and the action after it.")
    sticky_actions: float | None = task(
        None,
        "Atari: probability that the emulator repeats the previous action.",
        option.PROBABILITY,
        shown="the game's own",
    )
    reward_shift: float = task(
        0.0,
        "Subtract this from each step's reward for training, such as an alive bonus.",
        option.AMOUNT,
    )
    reward_clip: tuple[float, ...] = task(
        (),
        "Clip each step's reward to LOW HIGH for training; scores stay the task's.",
        option.ASCENDING,
        shown="off",
    )

    small_net: bool = policy(False, "Use the small MLP instead of the Convnet-LSTM.")
    net: str | None = policy(
        None,
        "Network of your own, a torch.nn.Module: MODULE:CLASS.",
        option.MODULE_CLASS,
        shown="none",
    )
    net_kwargs: tuple[str, ...] = policy(
        (), "Arguments of --net, such as width=64.", option.ASSIGNMENTS, shown="none"
    )
    hidden_sizes: tuple[int, ...] = policy(
        (64, 64), "Units of the MLP's hidden layers; nothing for a linear policy.", option.WIDTHS
    )
    activation: Literal["selu", "tanh", "relu"] = policy(
        "selu", "Activation of the MLP's hidden layers."
    )
    obs_norm: bool = policy(
        False, "Normalise observations by their running mean and standard deviation (MLP)."
    )
    obs_clip: float = policy(
        5.0,
        "Clip normalised observations at this many standard deviations; 0: no clip.",
        option.STRENGTH,
    )
    obs_std_floor: float = policy(
        0.0, "Least standard deviation that observations are divided by.", option.STRENGTH
    )
    squash: Literal["tanh", "clip"] = policy(
        "tanh",
        "How outputs become continuous actions: tanh scaled to their bounds, or clipped to them.",
    )
    vbn: bool = policy(False, "Virtual batch normalisation (Convnet-LSTM).")
    action_bins: int | None = policy(
        None,
        "Choose continuous actions among so many evenly spread values per dimension.",
        option.BINS,
        shown="off",
    )
    init: Literal["torch", "zero"] = policy(
        "torch", "First parameters: torch's default initialisation, or zero (linear policies)."
    )
    sample_actions: bool = policy(
        False, "Draw discrete actions by the softmax of the outputs, instead of the largest."
    )
    action_noise: float = policy(
        0.0,
        "Standard deviation of noise on continuous actions in training, in their own units.",
        option.STRENGTH,
    )

    n: int = algorithm(
        40, "Batch size: perturbations per update (even, for mirrored pairs).", option.BATCH
    )
    frames_per_update: int | None = algorithm(
        None,
        "Ask for further perturbations until an update's episodes have seen so many steps.",
        option.between(1, 10**12),
        shown="off",
    )
    n_max: int | None = algorithm(
        None,
        "Perturbations per update at most, with --frames-per-update.",
        option.BATCH,
        shown="ten times --n",
    )
    sigma: float = algorithm(0.05, "Standard deviation of the perturbations.", option.SCALE)
    sigma_decay: float = algorithm(
        1.0, "Sigma is multiplied by it after each update.", option.FRACTION
    )
    sigma_min: float | None = algorithm(
        None, "Where --sigma-decay ends.", option.SCALE, shown="no limit"
    )
    sigma_adapt: bool = algorithm(False, "Adapt a sigma for each parameter, as PGPE does.")
    sigma_lr: float = algorithm(0.1, "Learning rate of --sigma-adapt.", option.SCALE)
    lr: float = algorithm(LR, "Learning rate.", option.SCALE)
    lr_decay: float = algorithm(
        1.0, "The learning rate is multiplied by it after each update.", option.SCALE
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = algorithm(
        "constant", "Course of the learning rate, down to 0 after --max-gradient-updates."
    )
    optimizer: Literal["sgd", "adam", "adamw", "clipup"] | None = algorithm(
        None, "Optimiser that takes the step.", shown="sgd"
    )
    use_adam: bool = algorithm(False, "The same as --optimizer adam.", name="useAdam")
    momentum: float = algorithm(0.0, "Momentum of SGD.", option.BELOW_ONE)
    max_speed: float | None = algorithm(
        None,
        "Longest step of --optimizer clipup, whose --lr is by default 3/4 of it.",
        option.SCALE,
        shown="none",
    )
    weight_decay: float = algorithm(
        0.0,
        "Weight decay: L2 in the gradient, decoupled with adamw and clipup.",
        option.STRENGTH,
    )
    sampling: Literal["antithetic", "gaussian"] = algorithm(
        "antithetic", "Perturbations in mirrored pairs, or each with noise of its own."
    )
    shaping: Literal["nes", "centered-rank", "normalized", "raw"] = algorithm(
        "nes", "Fitness shaping: how returns become utilities."
    )
    top_directions: int | None = algorithm(
        None,
        "Learn from so many pairs only: those with the best better member.",
        option.COUNT,
        shown="all",
    )
    episodes_per_perturbation: int = algorithm(
        1, "Episodes whose mean return is a perturbation's.", option.COUNT
    )
    episode_seeding: Literal["pair", "update", "independent"] = algorithm(
        "pair",
        "Who plays the same episodes: perturbations by the same noise, all of an update, or none.",
    )
    param_fraction: float = algorithm(
        1.0, "Each perturbation changes this fraction of the parameters.", option.FRACTION
    )
    seed: int | None = algorithm(
        None,
        "Seed of everything random. With --test: of the episodes.",
        option.SEED,
        shown="drawn, printed and saved; with --test: the run's evaluation episodes",
    )


def default_lr(max_speed: float | None) -> float:
    """Return the default of --lr, beside this --max-speed."""
    return STEP_OF_SPEED * max_speed if max_speed else LR
