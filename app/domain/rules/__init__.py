"""Permission rules: the language, its matching, and rules remembered from decisions."""
