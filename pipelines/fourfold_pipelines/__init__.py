"""The pipelines that chain the steps, what runs them here, and the command line.

``experiment`` (every way) and ``train`` (one way) are the pipelines: their definitions are the same on a
laptop and in Kubeflow. ``chosen`` is what a pipeline is built with, ``steps`` what each step is given,
``compiled`` writes YAML. ``local`` runs the experiment on this machine with kfp's own runner; ``job`` is the
Job that does so inside a cluster; ``reach`` opens the way to a cluster's store from outside; ``kubeflow``
submits to a server, ``doctor`` checks what a run needs. ``cli`` has a file a command. This package may import
every step's ``component``; no step imports it.
"""
