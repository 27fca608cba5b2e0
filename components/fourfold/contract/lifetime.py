"""No process of a run outlives the one that started it."""

import os
import threading
import time
from collections.abc import Callable


def end_with_parent(
    end: Callable[[], None] | None = None, parent: int | None = None, seconds: float = 0.5
) -> None:
    """Watches this process's parent from a thread; when the parent is gone, ends this process.

    Polling ``getppid`` works on every POSIX system, whatever killed the parent, also by SIGKILL.

    Args:
        end: called when the parent is gone; by default the process exits at once with 143.
        parent: process id of the parent, where it was asked for before a fork; by default as it is now.
        seconds: time between two looks.
    """
    expected = os.getppid() if parent is None else parent

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(seconds)
        if end is not None:
            end()
        else:
            os._exit(143)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
