"""Language models: what answers when the runtime asks for an inference.

One adapter of our own for the OpenAI-compatible wire, one over pydantic-ai for every other provider, and
a model that plays a script. Each satisfies `LanguageModel` of `app/runtime/ports.py`: what has arrived
together is one list, failures are `InferenceFailed` with a kind, nothing is retried, and leaving a
stream's context closes its socket. SDKs are imported when a model that needs one is built.
May import `runtime.ports`, `domain` and `clock`; secrets and the environment come in as arguments.
"""
