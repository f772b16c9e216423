"""Measurements: what was promised, taken in one run beside the alternative it was promised against.

A subject is a file with `run(effort)`, which returns `metrics.Measure`s. No figure is known in
advance here: only the bars are, and where they come from is the issue that set them. What
never belongs here: anything the bot itself needs, or a test.
"""
