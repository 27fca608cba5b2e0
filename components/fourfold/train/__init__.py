"""STEP: starts the workers of one scenario, waits, passes on their progress, fails with their cause.

``step`` is the story, ``processes`` starts worker processes on this machine, ``component`` is the step's KFP
face. What the workers write is checked here before anyone may take it for whole. Knows ``store`` and
``contract``; never TensorFlow.
"""
