"""The pipelines that chain the steps, what runs them here, and the command line.

``experiment`` is the pipeline: its definition is the same on a laptop and in Kubeflow. ``local`` runs it on
this machine with kfp's own runner; ``job`` is the Job that does so inside a cluster; ``reach`` opens the
way to a cluster's store from outside. ``cli`` has a file a command. This package may import every step's
``component``; no step imports it.
"""
