"""The study of merging: every rule on every split and start, with what it is held against.

``cells`` says what is measured, ``trainings`` trains each model once, ``measure`` merges and measures one
cell, ``table`` puts cells together, ``page`` shows them. Whatever is done is kept by a manifest, so that a
study can stop and go on.
"""
