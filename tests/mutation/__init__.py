"""One-token changes of the code, and whether the tests notice them: `make mutants`."""
