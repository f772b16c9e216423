"""Packages that people install: resolved, built and kept beside the kernels, used in running ones.

A *layer* holds the packages that one installation adds to a kernel: a directory of unpacked wheels
that never changes, is named by its content, and is shared by all sessions. All layers are in one
directory, which every kernel can enter but not list.
"""
