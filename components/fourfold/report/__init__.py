"""STEP: one self-contained page about a run, and the same as strict JSON for programs.

``results`` gathers the numbers (pure), ``pictures`` draws them as SVG, ``page`` fills the template, ``step``
is the story. Knows ``store`` and ``contract``; never TensorFlow, never another step.
"""
