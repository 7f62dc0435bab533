"""What the runtime beside the engine reports, and what is made of it."""
