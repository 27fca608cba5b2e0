"""STEP: merges the weights of models that were trained apart, by every rule, and measures each result.

One file a rule, each pure arithmetic on named arrays, listed in ``rules``. ``members`` loads the models and
makes sure that they are of one structure, ``step`` is the story. Knows ``model``, ``store`` and ``contract``;
never another step.
"""
