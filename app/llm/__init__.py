"""Language models: adapters that satisfy `LanguageModel` of `runtime/ports.py`.

`openai` is our own adapter of the OpenAI-compatible wire, `pydantic_ai` covers the other providers,
`scripted` plays a script. `catalog` holds the models of the agents file. An adapter never retries: retries
are in `runtime/inference`. SDKs are imported when a model that needs one is built.
"""
