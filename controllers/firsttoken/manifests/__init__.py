"""From a plan to Kubernetes objects: plain dicts, byte-stable for equal input."""
