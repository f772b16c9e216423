"""Typed settings by subject. Other packages import them from `settings`.

Here belong names, types, units and defaults. Never: where values come from (that is `settings`).
"""
