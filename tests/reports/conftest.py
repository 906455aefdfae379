"""The program that compares runs, in this process."""

import pytest

from es.compare import main


@pytest.fixture
def compare(capfd):
    """Status, standard output and standard error of a command line."""

    def run(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return run
