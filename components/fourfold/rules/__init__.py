"""How models that were trained apart become one: a file a rule, listed in ``table``, joined in ``chain``.

``members`` are the models, ``sites`` hold their rows and answer with sums, ``statistics`` is what a site
gathers when it has trained, ``state`` is what goes from one rule to the next. The arithmetic is NumPy on
arrays named by place and role; what has to run a model asks ``model``. Used by the merge step and by the
worker. Knows ``model`` and ``contract``; never a step.
"""
