"""STEP: reads the source, checks all of it, and writes ready batches and the split into the store.

``idx`` and ``download`` read, ``source`` names what can be read, ``split`` deals rows to shards, ``step`` is
the story, ``component`` its KFP face. Knows ``store`` and ``contract``; never TensorFlow, never another step.
``sample/`` holds the MNIST sample that is the default source, with its licence.
"""
