"""Which of many pairs of values nothing beats on both axes."""

from collections.abc import Sequence


def undominated(values: Sequence[tuple[float, float]], points: int) -> tuple[list[int], bool]:
    """Places of the values that nothing beats on both axes, at most `points`, and whether these are all."""
    front: list[int] = []
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        if not front or values[i][1] < values[front[-1]][1]:
            front.append(i)
    if len(front) <= points:
        return front, True
    last = max(points - 1, 1)
    return [front[i] for i in dict.fromkeys(i * (len(front) - 1) // last for i in range(points))], False
