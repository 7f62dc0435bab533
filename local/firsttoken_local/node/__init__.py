"""A real node beside the fake ones: kubelet, containerd, kube-proxy and DNS, in namespaces of their own.

All of them run below one process in a PID, mount and network namespace (:mod:`.init`). When that process ends,
however it comes, the kernel ends the containers, the mounts and the pods' networks with it. What is left on the
machine is one network link, one nftables table, one cgroup and a few empty folders; they are written down before
they are made (:mod:`.registration`) and removed by :func:`.teardown.remove_traces`.

One real node at a time: it has the machine's memory and processors.
"""

NAME = "real"  # of the Node
PROCESS = "node"  # in the process table
