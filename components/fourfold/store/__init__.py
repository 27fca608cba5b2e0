"""Where bytes live: objects by key in a folder, their formats, and the cache of ready batches.

``objects`` reads and writes whole objects, ``formats`` turns arrays into bytes and back without ever
unpickling, ``cache`` writes and reads data sets of cached batches and verifies what it reads. Knows
``contract`` only; never TensorFlow.
"""
