"""Composition root: everything is opened bottom-up and closed top-down here.

`kernel_pool` opens kernels alone, `conversation_service` everything that platforms need. Apart,
because a command that only runs code would otherwise spend half of its time on unused imports.
"""
