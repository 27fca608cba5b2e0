"""What is learnt: the network, its weights as named arrays, and how well it does.

``network`` builds it, ``stages`` cuts it, ``weights`` names each variable by its place in the graph and its
role, ``scoring`` predicts, ``measures`` turns predictions into numbers and is plain NumPy; ``pinned`` is
Keras with fixed settings. All but ``measures`` import Keras; a step that must stay slim imports that alone.
"""
