"""How an update's tasks are divided among nodes."""


def share(waiting: int, workers: int, unfinished: int, idle: int, total: int) -> tuple[int, int]:
    """Return how many tasks a node gets, and how many are left when it asks for more.

    waiting: tasks that no node has yet. workers, unfinished: this node's workers and tasks. idle,
    total: the workers without a task and all workers, of all nodes.

    Each idle worker gets a task. Of the tasks that then remain, a node gets half of its share in
    advance, so that its workers need not wait for the master: many at first, which takes few
    messages, none at the end, so that all nodes finish together (guided self-scheduling,
    Polychronopoulos and Kuck 1987). It asks again when three quarters of these are taken.
    """
    ahead = max(0, waiting - idle) * workers // (2 * total)
    given = min(waiting, max(0, workers + ahead - unfinished))
    if given == waiting:
        return given, 0
    return given, workers + ahead // 4 if ahead else workers - 1
