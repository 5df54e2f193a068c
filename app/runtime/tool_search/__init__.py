"""Many tools: the model sees a search tool, and the descriptions of the tools that it asked for.

`search_tool` describes and answers searches, `ranking` finds tools, `revealed_tools` is the state of a run.
"""
