"""STEP: turns the scores that the workers left into accuracy, loss and confusion on the same test rows.

Plain NumPy: the workers have scored their models, as saved, where the models were; what is asked of the
scores can be asked again without training again. Choices look at the hold-out rows only, never at test rows.
``step`` is the story, ``page`` one scenario for people, ``publish`` what Kubeflow shows.
"""
