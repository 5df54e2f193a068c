"""What providers bill for requests to models: tokens and cost."""
