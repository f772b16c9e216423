"""Code that runs inside the sandbox: the fork server, the confinement, the kernel.

Imports nothing else of `interpreter_bot`: it runs in the kernel's Python environment, which may
differ from the bot's, without the bot's settings or secrets. In order of life: `forkservers` enters
a new root (`rootfs`), imports the analysis stack (`preloads`), forks one init process per kernel
(`init_processes`), which confines itself (`confinement`, `seccomp`) and forks the kernel
(`kernel_apps`, `shells`, `standard_streams`). Displays go through `dataframes` and `html_displays`;
`previews` draws their pictures. The host's side is `kernels/provisioning`.
"""
