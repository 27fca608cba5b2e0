"""Where bytes live: objects by key in a folder or on an S3 server, and their formats.

``objects`` reads and writes whole objects, ``formats`` turns arrays into bytes and back without ever
unpickling. Knows ``contract`` only; never TensorFlow.
"""
