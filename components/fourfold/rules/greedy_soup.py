"""The mean of those members that help on calibration rows."""

from fourfold.model import measures, scoring, weights
from fourfold.rules.members import mean
from fourfold.rules.state import Ground, State


def apply(state: State, ground: Ground) -> State:
    """The rule in a chain.

    Wortsman et al., 2022, "Model soups", recipe 1: members by their accuracy on calibration rows, best first;
    each stays in the mean if the accuracy is not lower with it.
    """
    assert ground.calibration is not None
    rows = ground.calibration

    def accuracy(values) -> float:
        weights.assign(ground.model, values)
        return measures.accuracy(scoring.logits(ground.model, rows.x), rows.y)

    # Sorting is stable, so members that are equally good keep the chain's order, which is fixed.
    ranked = sorted(state.members, key=lambda member: -accuracy(member.weights))
    chosen, reached = ranked[:1], accuracy(ranked[0].weights)
    for member in ranked[1:]:
        found = accuracy(mean([*chosen, member]))
        if found >= reached:
            chosen, reached = [*chosen, member], found
    names = ", ".join(member.name for member in chosen)
    return state.now(mean(chosen), f"greedy_soup took {len(chosen)} of {len(ranked)} members: {names}.")
