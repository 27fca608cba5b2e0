"""What the steps agree on: the table of plans, the records that cross a step, object names, errors, exits.

Imports the standard library and nothing else, so that every image, however slim, can hold it. Nothing here
reads or writes bytes, a cluster or a clock, but for ``events`` (a line of progress), ``images`` (the
digest of this very code), ``lifetime`` (no process outlives its run) and ``again`` (a step that waits for
what may come back).
"""
