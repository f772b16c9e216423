"""Benchmarks: each compares a figure with its bar, and often with an alternative in the same run.

A subject is a module with `run(effort)`, which returns `metrics.Measure`s. The package holds no
expected figures, only bars. The bot itself never imports it, and tests belong in `tests`.
"""
