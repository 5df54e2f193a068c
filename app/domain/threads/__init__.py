"""Threads, messages and inputs. The runs on a thread are in `domain/runs`."""
