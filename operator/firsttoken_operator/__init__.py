"""What Firsttoken does: watches, reads and writes the cluster; talks to people on the command line."""
