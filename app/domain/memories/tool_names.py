"""The names of the tools that agents with the plugin `memory` have."""

MEMORY_PLUGIN = "memory"
MEMORY_SAVE = "memory_save"
MEMORY_SEARCH = "memory_search"
MEMORY_LIST = "memory_list"
MEMORY_FORGET = "memory_forget"
MEMORY_TOOLS = (MEMORY_SAVE, MEMORY_SEARCH, MEMORY_LIST, MEMORY_FORGET)
