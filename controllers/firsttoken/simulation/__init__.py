"""A serving engine in virtual time: requests in, the times of each out. Needs the extra `simulation` (numpy, numba)."""
