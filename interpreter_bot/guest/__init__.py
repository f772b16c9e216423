"""Code that runs inside the sandbox: the fork server, the confinement, the kernel.

Imports nothing else of `interpreter_bot`: it runs in the kernel's Python environment, which may
differ from the bot's, without the bot's settings or secrets. In order of life: `forkservers` enters
a new root (`rootfs`), leaves `init_servers` behind, which forks one init process per kernel
(`init_processes`), and imports the analysis stack (`preloads`). Forked into an init's namespaces,
`kernel_processes` confines itself (`confinement`, `landlock`, `seccomp`) and becomes the kernel
(`kernel_apps`, `ipython_shells`; what it shows leaves through `standard_streams` and
`iopub_threads`). These processes and the bot exchange `control_messages`, which the bot imports,
too.

`bot_calls` lists what the bot calls in a kernel: `snapshots` saves variables and `snapshot_readers`
restores them; `completions` and `table_files` look at them, and at files, for people,
`file_descriptions` for models (by `delimited_text` and `file_kinds`). What might take long, or run
code of a user's class, they do in `bounded_children`, and so does `picture_scaling`.

Displays go through `dataframe_displays` and `html_displays`; `display_previews` draws their
pictures, and `display_hooks` keeps libraries from opening windows. What scripts expect of their
surroundings is in `standard_input`, `nested_loops` and `open_files`; errors are written by
`compact_tracebacks`, those that end no cell by `background_errors`. The host's side is
`kernels/provisioning`. In the bot's Python, `sandbox_launcher` becomes a program of `mcp_servers`,
`landlock_launcher` a worker of `data_connections` or uv; the bot gives them `program_walls`.
"""
