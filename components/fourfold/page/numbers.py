"""Numbers as people read them, on pages and in a terminal."""


def percent(share: float | None) -> str:
    """A share, 0 to 1; None stands for what is no number."""
    return "not a number" if share is None else f"{100 * share:.2f} %"


def nats(loss: float | None) -> str:
    """A loss; None stands for what is no number."""
    return "not a number" if loss is None else f"{loss:.4f}"
