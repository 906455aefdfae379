"""The first lines of a run, which are shown before torch is imported."""

from es.config import Config
from es.errors import in_one_line


def default_environment(config: Config) -> str:
    """Return the warning that nobody has chosen the environment."""
    return (
        f"No --env-name given: training {config.env_name}, which takes hours. "
        "Try --env-name CartPole-v1."
    )


def first_line(config: Config) -> str:
    """Return what begins, as far as the settings say before anything is loaded."""
    if config.restore:
        return in_one_line(f"Loading {config.restore} ...")
    workers = config.n + 1 if config.workers is None else config.workers
    where = f"ray: {config.ray}" if config.ray else f"workers: {workers}"
    network = f"{config.net}, " if config.net else "MLP, " if config.small_net else ""
    return in_one_line(f"Training {config.env_name} ({network}{where}): starting ...")
