"""Fourfold: one Keras model and one data set, trained every way there is to split the work.

Each room below is a package with a sign of its own. The rooms named after verbs are the steps of the
pipeline; they know nothing of each other and agree only on what stands in ``contract``. ``worker`` is the
program that trains.

    pipelines > prepare | train | evaluate | merge | report | worker > model > store > contract
"""

__version__ = "0.1.0"
