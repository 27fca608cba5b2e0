"""STEPS of the study of merging: every rule on every split and start, with what it is held against.

``cells`` says what is measured, ``trainings`` trains each model once, ``measure`` merges and measures one
cell, ``table`` puts cells together, ``page`` shows them, ``kept`` keeps what is done, so that a study can
stop and go on. The only steps that know other steps: they prepare, train and merge by them.
"""
