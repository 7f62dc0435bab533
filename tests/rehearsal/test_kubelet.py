"""Deployments become pods, and pods drain, as Kubernetes does it; Envoys learn of both when DNS says so."""

from datetime import UTC, datetime
from typing import Any

from firsttoken.manifests.names import REVISION_LABEL, ROLE_LABEL
from firsttoken.reconcile.objects import progress
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.kubelet import Kubelet
from firsttoken.rehearsal.nodes import Node, Nodes
from firsttoken.rehearsal.pods import DNS_SECONDS

START = datetime(2026, 1, 1, tzinfo=UTC)


class Stage:
    """One cluster whose engines start in 30 s; `busy` holds the engines with requests."""

    def __init__(self, *nodes: Node) -> None:
        service = {"metadata": {"name": "chat", "namespace": "apps"}, "spec": {}}
        self.cluster, self.told, self.busy = Cluster(service, START, {}), list[tuple[str, str]](), set[str]()
        places = Nodes(nodes or None, lambda _: 8, lambda _: "nvidia.com/gpu")
        self.kubelet = Kubelet(
            self.cluster, places, lambda _, reason, message: self.told.append((reason, message)), startup=30.0,
            hardware=lambda *_: ("a100", False), idle=lambda pod: pod.name not in self.busy,
        )  # fmt: skip

    def deploy(self, name: str = "chat-1", *, replicas: int = 2, role: str = "serve", image: str = "a") -> None:
        """A Deployment is applied."""
        limits = {"nvidia.com/gpu": "1"} if role == "serve" else {}
        pod = {
            "terminationGracePeriodSeconds": 100,
            "containers": [{"name": "c", "image": image, "resources": {"limits": limits}}],
        }
        labels = {ROLE_LABEL: role, REVISION_LABEL: name}
        self.cluster.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": "apps"},
                "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}, "spec": pod}},
            }
        )

    def until(self, end: float, start: float = 0.0) -> None:
        """Time passes from event to event."""
        now = start
        while now <= end:
            self.kubelet.settle(now)
            now = self.kubelet.next(now)

    @property
    def deployment(self) -> dict[str, Any]:
        """The only one."""
        (found,) = self.cluster.objects("Deployment")
        return found

    @property
    def ready(self) -> list[str]:
        """Pods that serve."""
        return [p.name for p in self.kubelet.pods if p.ready and p.stays]

    @property
    def there(self) -> list[str]:
        """Pods, those included that are going."""
        return [p.name for p in self.kubelet.pods]


def test_pods_start_on_a_node_and_the_deployment_reports_them() -> None:
    stage = Stage()
    stage.deploy()
    stage.until(29)
    assert (stage.ready, progress(stage.deployment).complete) == ([], False)
    stage.until(30, 30)
    assert stage.ready == ["chat-1-1", "chat-1-2"]
    assert progress(stage.deployment).complete
    assert stage.told == [("PodsReady", "chat-1: 2 of 2 pods ready")]


def test_a_pod_that_is_idle_goes_when_callers_have_noticed_and_a_busy_one_when_it_has_finished() -> None:
    stage = Stage()
    stage.deploy(replicas=3)
    stage.until(30)
    stage.busy = {"chat-1-2"}
    stage.deploy(replicas=1)
    stage.kubelet.settle(40.0)
    assert stage.ready == ["chat-1-1"]
    assert [p.known(41.9) for p in stage.kubelet.pods] == [True] * 3  # for two seconds DNS still names them
    assert [p.known(42.0) for p in stage.kubelet.pods] == [True, False, False]
    stage.until(50, 40)
    assert stage.there == ["chat-1-1", "chat-1-2"]
    stage.busy = set()
    stage.until(51, 51)
    assert stage.there == ["chat-1-1"]


def test_nobody_drains_for_longer_than_the_grace_period() -> None:
    stage = Stage()
    stage.deploy(replicas=1)
    stage.until(30)
    stage.busy = {"chat-1-1"}
    stage.cluster.remove(stage.deployment)
    stage.until(129, 31)
    assert stage.there == ["chat-1-1"]
    stage.until(131, 131)
    assert stage.there == []


def test_another_template_rolls_one_pod_at_a_time_and_never_below_the_replicas() -> None:
    stage = Stage()
    stage.deploy(replicas=2)
    stage.until(30)
    stage.deploy(replicas=2, image="b")
    fewest, most, now = 2, 0, 40.0
    while now < 200:
        stage.kubelet.settle(now)
        fewest = min(fewest, len(stage.ready))
        most = max(most, sum(p.stays for p in stage.kubelet.pods))
        now = stage.kubelet.next(now)
    assert (fewest, most) == (2, 3)
    assert stage.ready == ["chat-1-3", "chat-1-4"]
    assert progress(stage.deployment).complete


def test_pods_without_a_gpu_wait_until_one_that_is_going_has_gone() -> None:
    stage = Stage(Node("n1", "a100", 1), Node("n2", "h100", 8))
    stage.deploy(replicas=1)
    stage.until(30)
    stage.deploy("chat-2", replicas=1)
    stage.kubelet.settle(31.0)
    says = (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node affinity/selector."
    )
    assert stage.told[-1] == ("PodsPending", f"chat-2: 1 pod Pending: {says}")
    pending = stage.cluster.pods[-1]["status"]["conditions"][0]
    assert (pending["reason"], pending["message"]) == ("Unschedulable", says)
    stage.cluster.remove(next(d for d in stage.cluster.objects("Deployment") if d["metadata"]["name"] == "chat-1"))
    stage.until(80, 32)
    assert stage.ready == ["chat-2-1"]


def test_pods_are_spread_over_nodes_and_a_lost_node_takes_its_own() -> None:
    first, second = Node("n1", "a100", 8), Node("n2", "a100", 8)
    stage = Stage(first, second)
    stage.deploy(replicas=4)
    stage.until(30)
    assert sorted(p.node for p in stage.kubelet.pods) == ["n1", "n1", "n2", "n2"]
    first.losses += 1
    stage.kubelet.lose([p for p in stage.kubelet.pods if p.node == "n1"])
    stage.kubelet.settle(40.0)
    assert len(stage.ready) == 2
    assert {p.node for p in stage.kubelet.pods} == {"n2"}


def test_a_deployment_that_comes_no_further_says_so() -> None:
    stage = Stage(Node("n1", "a100", 0))
    stage.deploy(replicas=1)
    stage.kubelet.settle(0.0)
    assert stage.kubelet.next(0.0) == 600.0
    stage.kubelet.settle(600.0)
    assert stage.deployment["status"]["conditions"][0]["reason"] == "ProgressDeadlineExceeded"


def test_a_router_is_ready_once_it_has_found_an_engine() -> None:
    """So a revision behind one is complete, and gets requests, only when the router has somewhere to send them."""
    stage = Stage()
    stage.deploy("chat-1-router", replicas=1, role="router")
    stage.deploy("chat-2", replicas=1)
    for pod in stage.cluster.objects("Deployment"):
        pod["spec"]["template"]["metadata"]["labels"][REVISION_LABEL] = "chat-1"
    stage.until(31)
    assert stage.ready == ["chat-2-1"]
    found = 30 + DNS_SECONDS
    stage.until(found, 31)
    assert stage.ready == ["chat-1-router-1", "chat-2-1"]
    (router,) = (p for p in stage.kubelet.pods if p.role == "router")
    assert router.ready_at == found
    assert (router.known(found + 1), router.known(found + DNS_SECONDS)) == (False, True), "Envoy hears of it after that"
