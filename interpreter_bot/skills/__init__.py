"""Skills: instructions and modules of the operator, in the format of agentskills.

`skill_files` reads one as it lies in a directory of the settings, and refuses what is no skill.
`accepted_skills` keeps copies of those that an administrator accepted: only these are shown in
kernels, at /skills, and only of these a model is told, by `skill_catalogue`. People and models can
add none.
"""
