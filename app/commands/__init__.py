"""Everything that changes data: one module per command, one public async function, one transaction.

A command checks the caller's scope, takes locks in the order of `storage`, writes, emits its events last and
commits. It does nothing slow in between. A refusal is an exception and changes nothing. Reads without changes
are in `queries`.
"""
