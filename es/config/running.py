"""How a run is run, ended, reported and watched: nothing of it changes what an update computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from es.config.option import (
    COUNT,
    NOT_EMPTY,
    POSITIVE,
    RAY,
    REPEATS,
    VIDEO,
    WORKERS,
    option,
)

ending = partial(option, group="ending")
evaluation = partial(option, group="evaluation")
run = partial(option, group="run")
watching = partial(option, group="watching", saved=False)


@dataclass(frozen=True)
class Running:
    """Ending, evaluation, the run's processes and files, and playing its policy."""

    max_gradient_updates: int = ending(
        100_000, help="Updates at most, counted from the run's first.", check=POSITIVE
    )
    max_frames: int | None = ending(
        None, help="End after this many training steps.", check=POSITIVE, shown="no limit"
    )
    max_minutes: float | None = ending(
        None, help="End after this many minutes of training.", check=POSITIVE, shown="no limit"
    )
    target_return: float | None = ending(
        None,
        help="End as soon as the policy's mean return over --eval-episodes reaches this.",
        shown="none",
    )

    eval_episodes: int = evaluation(20, help="Episodes of one evaluation.", check=COUNT)
    eval_every: int | None = evaluation(
        None,
        help="Evaluate after every so many updates; best.pth then goes by the evaluation.",
        check=POSITIVE,
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
        120.0,
        help="End when the cluster has had no worker for so many seconds.",
        check=POSITIVE,
        saved=False,
    )
    run_dir: str | None = run(
        None, help="Directory of the run.", check=NOT_EMPTY, shown="checkpoints/<env-name>"
    )
    save_every: int | None = run(
        None, help="Also keep update-<K>.pth every so many updates.", check=POSITIVE, shown="off"
    )
    video_every: int | None = run(
        None,
        help="Record an episode of the policy every so many updates, into videos/.",
        check=POSITIVE,
        shown="off",
    )
    wandb: bool = run(
        False, help="Report to Weights & Biases, too (WANDB_MODE=offline: no network).", saved=False
    )
    silent: bool = run(
        False, help="Print nothing but errors and the last line (with --test: the summary)."
    )
    config: str | None = run(
        None, help="TOML file with settings; flags go before it.", shown="none", saved=False
    )
    restore: str = run("", help="Checkpoint to start from.", shown="none")
    override: bool = run(False, help="Let flags change a restored run's algorithm settings.")

    test: bool = watching(False, help="Play the restored policy instead of training.")
    episodes: int | None = watching(
        None,
        help="Episodes to play with --test.",
        check=COUNT,
        shown="until the window closes; 10 with --no-render; 1 with --video",
    )
    no_render: bool = watching(False, help="With --test: open no window.")
    video: str | None = watching(
        None,
        help="With --test: record the episodes as this .mp4 or .gif.",
        check=VIDEO,
        shown="none",
    )
    json: bool = watching(False, help="With --test: print one line of JSON; implies --no-render.")
    stochastic_start: int | None = watching(
        None,
        help="With --test: begin episodes with up to so many no-ops (Atari) or random actions.",
        check=REPEATS,
        shown="off",
    )
    list_envs: tuple[str, ...] | None = watching(
        None,
        help="List the environments whose names contain one of these words, then end.",
        shown="off",
    )
