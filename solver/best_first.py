"""The search for one objective: expand topologies, bound rows, close what is left with CP-SAT, least bound first.

Three passes, each over what the last could not rule out, and each in a module of its own:
1. `expansion`: topologies by ascending floor, in chunks: price their rows, keep those whose first bound can still win;
2. `tightening`: those rows by ascending guess, in batches: the tight bound, and the layout that reaches it;
3. `closing`: rows whose bound is below the incumbent and not reached: CP-SAT with that bound below and the incumbent
   as cutoff.
The most promising rows of each chunk are bounded at once: a good incumbent early spares most of the work. When the
least open bound is at the incumbent, it is optimal; when nothing is open and nothing was found, there is none.
"""

from math import inf

from solver.closing import close, solve
from solver.expansion import Expansion
from solver.incumbent import Incumbent
from solver.pending import Pending
from solver.standing import Open, Question, Standing
from solver.tightening import tightened

FIRST_PROBE, PROBE = 4, 8
"""Rows of a chunk that are bounded at once: few, then twice as many each time until there is an incumbent; with one,
which spares most of the work, the second number."""


def search(question: Question, standing: Standing) -> Incumbent | None:
    """The optimum, or None when there is no feasible configuration (or none within the budget)."""
    pending, still_open = Pending(question), list[Open]()
    expansion = Expansion(question)
    for groups in expansion.chunks(standing):
        pending.add(groups)
        still_open += _probed(question, standing, pending)
        standing.proven(min(expansion.least, pending.least, *(row.lower for row in still_open), inf))
        if standing.answered:
            return standing.incumbent
    still_open += _tightened(question, standing, pending)
    close(question, standing, still_open)
    if standing.found:
        standing.proven(inf)  # what is not open is not below the incumbent
    return standing.incumbent


def _probed(question: Question, standing: Standing, pending: Pending) -> list[Open]:
    """What stays open of the most promising rows. Without any incumbent the best of them goes to CP-SAT at once."""
    count, still_open = FIRST_PROBE, list[Open]()
    while not standing.found and len(pending.lower):
        still_open += _tightened(question, standing, pending, count)
        if still_open and not standing.found:
            best = min(still_open, key=lambda row: row.rank)
            still_open.remove(best)
            solve(question, standing, best)
        count *= 2
    return still_open + _tightened(question, standing, pending, PROBE)


def _tightened(question: Question, standing: Standing, pending: Pending, count: int | None = None) -> list[Open]:
    """What stays open of the `count` most promising rows, of all without a count."""
    still_open = list[Open]()
    for group, at in pending.take(standing, count):
        if standing.answered:
            break
        still_open += tightened(question, standing, group, at)
    return still_open
