"""What the simulator refuses."""


class SimulationInputError(ValueError):
    """Input that can't be simulated. The message is one line: the field, what is wrong with it, and the remedy."""
