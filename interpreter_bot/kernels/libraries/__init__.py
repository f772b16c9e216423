"""The kernels' own Python environment: which libraries it has, and how it is made.

`core.in`, `full.in` and `media.in` list what code may import. `make lock` pins each list, with
hashes, in the `.lock` file beside it. The lists and locks are part of the wheel, so that an
installed bot can make the environment too.
"""
