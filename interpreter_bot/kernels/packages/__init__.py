"""Packages that people install: resolved, built and kept beside the kernels, used in running ones.

A *layer* is what one installation adds to what a kernel has: a directory of unpacked wheels that
never changes, named after its content, shared by all sessions. All layers lie below one directory,
which every kernel sees and cannot list.
"""
