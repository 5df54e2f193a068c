"""Start, queue, steer, interrupt, cancel and retry runs. Their tickets are in `commands/tickets`."""
