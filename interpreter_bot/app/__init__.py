"""Composition root: everything is opened bottom-up and closed top-down here.

`execution_startup` opens kernels alone, `service_startup` everything that platforms need. Apart,
because a command that only runs code would otherwise spend half of its time on unused imports.
`garbage_collection` waits while they open.
"""
