"""One inference: its request, the streamed answer, retries and recovery.

`retries` repeats an attempt that failed before its answer began; `recovery` decides what happens to an
answer that was interrupted.
"""
