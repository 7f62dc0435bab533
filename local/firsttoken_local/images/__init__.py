"""Images of what the Dockerfiles describe, made by script where no builder and no registry can be reached."""
