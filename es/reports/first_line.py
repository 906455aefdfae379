"""The first line of a run, which is shown before anything slow is imported."""

from es.config import Config
from es.errors import in_one_line


def first_line(config: Config) -> str:
    """Return what begins, as far as the settings say before anything is loaded."""
    if config.restore:
        return in_one_line(f"Loading {config.restore} ...")
    workers = config.n + 1 if config.workers is None else config.workers
    where = f"ray: {config.ray}" if config.ray else f"workers: {workers}"
    network = f"{config.net}, " if config.net else "MLP, " if config.small_net else ""
    return in_one_line(f"Training {config.env_name} ({network}{where}): starting ...")
