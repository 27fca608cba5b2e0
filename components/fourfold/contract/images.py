"""The container images that steps and workers run in: one name each, pinned, and named nowhere else."""

from fourfold import __version__

WORKER = f"fourfold/python-worker:{__version__}"
"""Everything: TensorFlow, kfp, kubernetes. Runs the TFJob's pods and the steps that train, merge or draw."""

STEPS = f"fourfold/python-steps:{__version__}"
"""Slim: no TensorFlow. Runs the steps that read, check and launch."""
