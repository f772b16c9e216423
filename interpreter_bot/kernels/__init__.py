"""Live kernels and what they run: pool, executions, outputs, workspaces, provisioning.

Everything that comes out of a kernel is hostile here, and harmless above. What never belongs here:
who people are and what they may run, what is stored. How a kernel is started
continues in `provisioning`, its inside in the package `guest`.
"""
