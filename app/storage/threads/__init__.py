"""Threads, messages and inputs."""
