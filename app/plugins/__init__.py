"""Plugins that come with Holdfast, one file each.

A plugin watches the phases of a run and asks for what it wants: that the run stops, that a call waits,
that the model is shown something. It keeps nothing itself; what it remembers is state under keys of its
own. May import `runtime` and `domain`.
"""
