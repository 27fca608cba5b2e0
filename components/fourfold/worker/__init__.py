"""PROGRAM of the TFJob's pods and of the local worker processes: ``python -m fourfold.worker``.

``supervise`` is the parent: it forks one child (in a pod) or W children (here), passes on what they print,
and ends all when one fails. In the child ``loop`` tells the training as one story: ``cluster`` makes the
strategy, ``input`` deals rows to steps, ``build`` makes the model whole or in stages (``parts``), ``epochs``
decides which steps are taken in one call, ``checkpoint`` saves after each, ``save`` writes what all yields.
``steps`` is the compiled training step, of ``gradients`` and their sum over the workers (``exchange``);
``rounds`` merges weights instead. ``remote`` lends a process's devices to another one's stages; ``probes``
and ``busy`` look on, ``words`` says what is to be said. Nothing here asks for a scenario by name. Imports
``model``, ``store``, ``contract`` and TensorFlow; never kfp or kubernetes, never a pipeline step.
"""
