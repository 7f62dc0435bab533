"""What stops a rehearsal."""


class WorldError(ValueError):
    """The world file, or one of its events, can't be used; the message is one line: field, what is wrong, remedy."""


class NotRehearsedError(ValueError):
    """Something that this version can't rehearse; the message says what and what to do."""
