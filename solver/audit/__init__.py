"""The audit: is a claimed optimum one? Asked again from the definition, by other means than the search used.

It shares with the search what defines the question (the job, the domains, the rule files, the objectives) and the
formulas of `cost_models`; nothing of the search itself. Rows are enumerated anew (`space`), coefficients rounded anew
(`grid`), and for every row one argument must hold why it cannot beat the claim (`arguments`): too slow or too large
whatever its layout (`relaxation`), or no path through its layers meets both limits (`paths`, an exact search that knows
neither the bounds of the search nor CP-SAT). Only `models`, which hands rows to CP-SAT a second time, uses the search's
own model of a row. A test holds that nothing else is imported.
"""
