"""Skills: instructions and modules of the operator, in the format of agentskills.

`skill_files` reads and checks a skill in a directory of the settings. `accepted_skills` has copies
of the skills that an administrator accepted: only these are in kernels, at /skills, and in the
`skill_catalogue` for models. People and models cannot add any.
"""
