"""What sessions use, measured from /proc where no control group counts for us.

Only measures; `kernels.monitors` and `kernels.watchdogs` decide what follows. Processes that are
looked at are hostile: a look is bounded in time and bytes.
"""
