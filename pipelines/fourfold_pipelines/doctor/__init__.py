"""Checks that what a run needs is there, and says of each thing that is not what to do.

``findings`` is what a check yields; ``tested`` the versions that this version was tested with; ``machine``
looks at this machine; ``cluster``, ``training_operator``, ``namespace``, ``rights`` and ``nodes`` at what an
API server says (pure but for the questions that they ask); ``store`` at the store; ``asking`` puts the
questions, the one module here that knows the Kubernetes client.
"""
