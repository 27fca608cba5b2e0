"""STEP: merges the weights of models that were trained apart, by every rule, and measures each result.

The rules themselves are the room ``rules``; ``step`` is the story. Knows ``rules``, ``model``, ``cache``,
``store`` and ``contract``; never another step.
"""
