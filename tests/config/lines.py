"""Command lines as settings."""

from collections.abc import Sequence

from es.config import Config
from es.config.sources import combine, read_flags


def parse(words: Sequence[str]) -> Config:
    """Return the settings of a command line, without a file's or a checkpoint's."""
    return combine(read_flags(words))
