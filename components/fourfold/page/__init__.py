"""How pages look: one document that needs nothing else, and pictures as SVG, the same for every step.

``document`` fills a step's template inside the frame that all pages share; ``pictures`` draws what models
reached, ``training_pictures`` what went on meanwhile; ``lanes`` measures what a picture of stages shows;
``numbers`` writes numbers. Knows the libraries that do so, and ``contract``; nothing of a step.
"""
