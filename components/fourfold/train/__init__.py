"""STEP: runs the workers of one scenario, waits, passes on their progress, fails with their cause.

``step`` is the story, ``component`` its KFP face. Workers are processes of this machine (``processes``) or
the pods of a TFJob: ``tfjob`` makes the manifest and ``verdict`` reads what the API server says, both pure;
``launch`` creates or adopts the job, ``follow`` waits for it, ``logs`` reads its pods, ``clean_up`` deletes
what a run in Kubeflow has left (a step of its own), and ``api`` is the one module that knows the Kubernetes
client. What the workers write is checked here before anyone may take it for
whole. Knows ``store`` and ``contract``; never TensorFlow.
"""
