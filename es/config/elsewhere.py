"""What other trainers call our flags: an error suggests ours."""

NAMES = {
    "--env-name": "env env-id environment game task",
    "--max-episode-length": "max-episode-steps episode-length horizon time-limit",
    "--obs-norm": "norm-obs normalize-obs normalize",
    "--net": "policy network model-class policy-class",
    "--net-kwargs": "policy-kwargs",
    "--hidden-sizes": "hidden-size hidden-dim hidden-layers net-arch",
    "--n": "popsize pop-size population population-size npop num-directions n-delta batch-size",
    "--sigma": "std noise-std noise-stdev delta-std sigma-init",
    "--lr": "learning-rate step-size alpha",
    "--useAdam": "adam",
    "--weight-decay": "l2 l2-coeff l2coeff",
    "--max-gradient-updates": "iterations n-iter num-iterations max-iter generations epochs",
    "--max-frames": "total-timesteps timesteps n-timesteps total-steps max-steps steps frames",
    "--target-return": "target-reward reward-threshold target solved-reward",
    "--eval-every": "eval-freq eval-interval",
    "--eval-episodes": "n-eval-episodes num-eval-episodes",
    "--workers": "n-envs num-envs num-workers n-workers n-jobs num-cpu num-cpus num-processes",
    "--run-dir": "logdir log-dir log-folder log-path save-dir out-dir output-dir tensorboard-log "
    "exp-name run-name output",
    "--save-every": "save-freq save-interval checkpoint-freq",
    "--video-every": "capture-video record-video",
    "--wandb": "track use-wandb",
    "--silent": "quiet",
    "--config": "conf conf-file config-file",
    "--restore": "checkpoint load load-model load-checkpoint model model-path resume trained-agent",
    "--test": "render play enjoy eval evaluate",
    "--no-render": "no-rendering headless",
    "--episodes": "n-episodes num-episodes",
}
OURS = {f"--{name}": ours for ours, names in NAMES.items() for name in names.split()}
