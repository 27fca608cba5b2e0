"""A Kubeflow Pipelines server, as far as submitting needs it.

``server`` speaks to it, over the client that kfp brings; ``progress`` turns what it says of a run into the
events of a live view, and ``nodes`` into the names of pods, both pure; ``submission`` is the story. Knows
nothing of what a pipeline does.
"""
