"""Settings that change nothing of what an update computes: ending, files, reports, playing."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from es.config import option

ending = partial(option.option, group="ending")
evaluation = partial(option.option, group="evaluation")
run = partial(option.option, group="run")
watching = partial(option.option, group="watching", saved=False)


@dataclass(frozen=True)
class RunSettings:
    """Settings of ending, evaluation, processes and files, and of playing a policy."""

    max_gradient_updates: int = ending(
        100_000, "Updates at most, counted from the run's first.", option.LIMIT
    )
    max_frames: int | None = ending(
        None,
        "End after this many steps of perturbed episodes, counted from the run's first.",
        option.LIMIT,
        shown="no limit",
    )
    max_minutes: float | None = ending(
        None,
        "End after this many minutes of training, those before a --restore included.",
        option.POSITIVE,
        shown="no limit",
    )
    target_return: float | None = ending(
        None,
        "End as soon as the policy's mean return over --eval-episodes reaches this.",
        option.AMOUNT,
        shown="none",
    )

    eval_episodes: int = evaluation(20, "Episodes of one evaluation.", option.COUNT)
    eval_every: int | None = evaluation(
        None,
        "Evaluate after every so many updates; best.safetensors then goes by the evaluation.",
        option.LIMIT,
        shown="off",
    )

    workers: int | Literal["auto"] | None = run(
        None,
        "Worker processes; 'auto' is one per core, 0 plays in this process.",
        option.WORKERS,
        shown="one per perturbation and one for the unperturbed parameters",
    )
    rollout_timeout: float | None = run(
        None,
        "Replace a worker process whose episode takes longer than so many seconds.",
        option.POSITIVE,
        shown="off",
    )
    ray: str | None = run(
        None,
        "Play on a Ray cluster: HOST:PORT, 'auto' (the one of this machine) or 'local' (a Ray "
        "started here); --workers is then per node.",
        option.RAY,
        shown="off",
        saved=False,
    )
    ray_timeout: float = run(
        120.0,
        "End when the cluster has had no worker for so many seconds.",
        option.POSITIVE,
        saved=False,
    )
    run_dir: str | None = run(
        None, "Directory of the run.", option.NOT_EMPTY, shown="checkpoints/<env-name>"
    )
    save_every: int | None = run(
        None,
        "Also keep update-<K>.safetensors every so many updates.",
        option.LIMIT,
        shown="off",
    )
    video_every: int | None = run(
        None,
        "Record an episode of the policy every so many updates, into videos/.",
        option.LIMIT,
        shown="off",
    )
    wandb: bool = run(
        False, "Report to Weights & Biases, too (WANDB_MODE=offline: no network).", saved=False
    )
    silent: bool = run(
        False, "Print nothing but errors and the last line (with --test: the summary)."
    )
    log_every: float = run(
        1.0,
        "In a pipe or a file, print a line of figures at most every so many seconds; 0 prints a "
        "block after each update.",
        option.between(0, 10**6),
        saved=False,
    )
    config: str | None = run(
        None,
        "TOML file with settings, or the name of a shipped one, such as CartPole-v1. Flags "
        "override it, wherever they stand. Its target holds for its own --env-name.",
        shown="none",
        saved=False,
    )
    restore: str = run("", "Checkpoint to start from.", shown="none")
    override: bool = run(False, "Let flags change a restored run's algorithm settings.")

    test: bool = watching(False, "Play the restored policy instead of training.")
    episodes: int | None = watching(
        None,
        "Episodes to play with --test.",
        option.COUNT,
        shown="until the window closes; 10 with --no-render; 1 with --video",
    )
    no_render: bool = watching(False, "With --test: open no window.")
    greedy: bool = watching(
        False, "With --test: play the largest outputs of a policy that draws its actions."
    )
    video: str | None = watching(
        None, "With --test: record the episodes as this .mp4 or .gif.", option.VIDEO, shown="none"
    )
    json: bool = watching(False, "With --test: print one line of JSON; implies --no-render.")
    stochastic_start: int | None = watching(
        None,
        "With --test: begin episodes with up to so many no-ops (Atari) or random actions.",
        option.REPEATS,
        shown="off",
    )
    export: str | None = watching(
        None,
        "Write the restored policy as a file that needs nothing of this program: .onnx, .pt2 (both "
        "if the name has no ending).",
        option.EXPORT,
        shown="off",
    )
    list_envs: tuple[str, ...] | None = watching(
        None,
        "List the names of all environments, or those that contain one of these words or are of a "
        "module (MODULE:) with their spaces, then end.",
        shown="off",
    )
    version: bool = watching(False, "Print the version, then end.")
