"""Skills: folders with instructions (`SKILL.md`), files and scripts, in the open Agent Skills format.

`loading` reads a folder, `plugin` gives an agent its skills and their tools, `scripts` runs a script.
"""
