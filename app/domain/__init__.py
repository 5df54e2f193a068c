"""The nouns of the service and the rules between them: frozen dataclasses, enums and pure functions.

No I/O, no clock, no asyncio and no pydantic; the time and new ids are arguments. Rows are in `storage`,
request bodies in `api/schemas`.
"""
