"""A complete Kubernetes cluster on this machine, without root, containers or a registry.

etcd, the API server, the controllers and the scheduler are the real ones, built from Go modules; the nodes
are KWOK's, so pods become Ready without running anything. Prometheus is real as well. Every process listens on
127.0.0.1 and belongs to one state directory, so several clusters live side by side. On Linux and as root, one of
them may have a real node as well (:mod:`.node`).
"""
