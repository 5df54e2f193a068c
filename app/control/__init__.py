"""Commands and queries: one module per verb, one public async function, one transaction.

A command checks who asks, takes its locks in the order of `storage`, writes, says its events last and
commits; nothing slow happens in between. A refusal is an exception of the domain's tree and changes
nothing. May import everything below: agents, tools, events, storage, domain.
"""
