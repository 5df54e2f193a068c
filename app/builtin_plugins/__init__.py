"""Plugins that come with Holdfast, one file each.

A plugin's hooks see a phase of a run and request something: that the run stops, that a call waits, that
the model sees a message. What a plugin is, and how hooks are called, is in `runtime/plugins` and
`runtime/phases`.
"""
