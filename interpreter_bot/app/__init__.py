"""Composition root: everything is opened bottom-up and closed top-down here.

`execution_startup` opens kernels alone, `service_startup` everything else that platforms need,
and `bot_startup` both side by side. They are separate modules, because a command that only runs
code would otherwise spend half of its time on unused imports.
"""
