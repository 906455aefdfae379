"""How an update's tasks are shared out among nodes."""

from __future__ import annotations


def share(waiting: int, workers: int, unfinished: int, idle: int, total: int) -> tuple[int, int]:
    """How many tasks a node is handed, and with how many unfinished ones it asks for more.

    waiting: tasks that no node has yet. workers: of this node; unfinished: tasks that it still has.
    idle, total: workers without a task, and all workers, of all nodes.

    Its idle workers get one task each. Beyond that it is to have half of its share of what remains
    once all idle workers have theirs, so that its workers need not wait for the master: much while
    much remains, which takes few messages, and nothing at the end, when all nodes are to finish
    together (guided self-scheduling, Polychronopoulos and Kuck 1987). It asks again when three
    quarters of that are taken.
    """
    ahead = max(0, waiting - idle) * workers // (2 * total)
    given = min(waiting, max(0, workers + ahead - unfinished))
    if given == waiting:
        return given, 0
    return given, workers + ahead // 4 if ahead else workers - 1
