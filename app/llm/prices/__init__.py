"""Prices of models: from the agents file, else from the public price list of genai-prices."""
