"""What runs inside the sandbox: the fork server, the walls it builds, the kernel in them.

Imports nothing of ours: it runs in the kernel's own environment, which may be another than the
bot's, without the bot's settings or secrets. In order of life: `forkservers` enters a fresh
`roots`, `preloads` the analysis stack, forks an `inits` process per kernel, which confines
itself (`walls`, `filters`) and forks the kernel proper (`kernelapps`, `shells`, `streams`).
What it displays goes through `tables`, `charts` and `pages`, which `figures` draws previews for.
The host's side of the story is `kernels/provisioning`.
"""
