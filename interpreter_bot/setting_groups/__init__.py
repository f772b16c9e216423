"""What the operator decides, a module for each matter. Everybody else takes it from `settings`.

Here belong names, types, units and defaults. Never: where values come from (that is `settings`).
"""
