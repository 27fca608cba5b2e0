"""PROGRAM of the TFJob's pods and of the local worker processes: ``python -m fourfold.worker``.

``supervise`` is the parent: it forks one child (in a pod) or W children (here), passes on what they print,
and ends all when one fails. In the child, ``cluster`` makes the strategy, ``input`` deals rows to steps,
``steps`` is the compiled training step, ``exchange`` its sum over the workers, ``loop`` tells the training as
one story, ``save`` writes what it yields. Nothing here asks for a scenario by name. Imports ``model``,
``store``, ``contract`` and TensorFlow; never kfp or kubernetes, never a pipeline step.
"""
