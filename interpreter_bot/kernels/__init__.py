"""Live interpreters and what they run: pools, executing, outputs, workspaces, provisioning.

Everything that comes out of a kernel is hostile here, and harmless above. What never belongs
here: who may run what, in which order people are served, what is remembered. How a kernel comes
to be continues in `provisioning`, its inside in the package `guest`.
"""
