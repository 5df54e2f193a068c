"""The whole HTTP surface against its own document, and against those who mean it harm."""
