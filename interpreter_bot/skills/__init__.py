"""Skills: instructions and modules of the operator, in the format of agentskills.

`skill_files` reads and checks a skill in a directory that the settings name. `accepted_skills`
keeps copies of the skills that an administrator accepted. Only these copies are in kernels, at
/skills, and in the `skill_catalogue` for models. People and models cannot add skills.
"""
