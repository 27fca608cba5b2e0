"""STEP: one self-contained page about a run, and the same as strict JSON for programs.

``results`` gathers the numbers (pure), ``page`` fills the template, ``summary`` is the comparison as
Markdown, ``step`` is the story. Knows ``store`` and ``contract``; never TensorFlow, never another step.
"""
