"""Language models: adapters that implement `LanguageModel` of `runtime/ports/models.py`.

`openai`, `anthropic` and `google` are our own adapters, over `http`; `pydantic_ai` covers the other providers,
`scripted` plays a script. `catalog` holds the models of the agents file. An adapter never retries: retries are in
`runtime/inference`. An SDK is imported when a model that needs it is built.
"""
