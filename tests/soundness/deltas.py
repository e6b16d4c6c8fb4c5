"""The least delta that releases are shown to keep: the other side of ``composed_epsilon``."""

from sordino._validate import non_negative
from sordino.privacy import accounting
from sordino.privacy.guarantee import NonPrivateEvent


def composed_delta(events, *, neighbors, epsilon):
    counts = accounting._counted(events, neighbors)
    epsilon = non_negative("epsilon", epsilon)
    if not counts:
        return 0.0
    if NonPrivateEvent() in counts:
        return 1.0
    closed = min(bound.delta(epsilon) for bound in accounting._closed(counts, neighbors))
    numerical = accounting._numerical(counts, neighbors, closed)
    return min([closed, *(bound.delta(epsilon) for bound in numerical)])
