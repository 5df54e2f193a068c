"""The usage ledger, sums of its rows by hour and by day, and totals of a period. Prices are in `app/llm`."""
