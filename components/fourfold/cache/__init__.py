"""The batch cache: ready rows, paid for once, read fast, verified whenever read.

``layout`` says what the bytes are, ``values`` how numbers are kept and made ready; ``dataset`` and ``splits``
write and read data sets in a store. ``reader`` gives a worker its rows in any order (``orders``) through the
tiers: memory, ``disk``, the store, each up to a budget (``budgets``), reading ahead. ``leases`` say who
reads what; ``housekeeping`` lists, verifies and prunes. ``worth`` is the arithmetic of what a cache saves,
``measure`` its twin by the clock. Knows ``contract`` and ``store``; no TensorFlow, and nothing of what is
trained.
"""
