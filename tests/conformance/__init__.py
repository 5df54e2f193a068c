"""What the runtime that ours is modelled on asserts of its loop, under the names that it has there.

Where ours does otherwise on purpose, the test says what ours does and its docstring what the other did.
"""
