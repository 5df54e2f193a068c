"""The demo agents file and its tools. They use the public package `holdfast` only."""
