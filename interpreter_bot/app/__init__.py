"""The one place where things are put together: opened bottom-up, closed top-down.

`pooling` opens kernels alone, `conversing` everything that platforms need. Apart, because a command
that only runs code would otherwise spend half of its time on importing what it never uses.
"""
