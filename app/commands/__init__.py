"""What changes something: one module per command, one public async function, one transaction.

A command checks the caller's scope, takes locks in the order of `storage`, writes, emits its events last and
commits; nothing slow happens in between. A refusal is an exception and changes nothing. What only
reads is in `queries`.
"""
