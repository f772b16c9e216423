"""Live kernels and what they run: pool, executions, outputs, workspaces, provisioning.

Everything that comes out of a kernel is hostile here, and harmless above. What never belongs here:
who may run what, in which order people are served, what is stored. How a kernel is started
continues in `provisioning`, its inside in the package `guest`.
"""
