"""From `helm install` to real tokens and back, in the order of a service's life; each test goes on from the last."""

from __future__ import annotations

import os
import signal
import time

import pytest
from e2e.real.support import MODEL, SERVICE, Installed, asking, process_of
from e2e.support import GROUP

from firsttoken_local import chat
from firsttoken_local.installation import NAMESPACE

CPU_BLOCK = 128  # tokens of a KV block: vLLM's default on CPUs

pytestmark = pytest.mark.timeout(900)


def test_the_chart_s_pods_run_and_one_of_two_leads(installed: Installed) -> None:
    """`helm install --wait` came back: both are ready, and exactly one works."""
    pods = installed.cluster.client.list("v1", "Pod", namespace=NAMESPACE)
    pods = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]  # left of an upgrade
    assert len(pods) == 2
    assert {pod["metadata"]["name"] for pod in pods} >= {installed.leader()}
    assert "infsvc/first" in installed.notes
    catalogue = installed.cluster.client.list(GROUP, "AcceleratorProfile")
    assert "cpu" in {profile["metadata"]["name"] for profile in catalogue}


def test_one_kubectl_apply_answers_with_streamed_tokens(served: Installed) -> None:
    """Service -> Envoy -> vllm-router -> vLLM, token by token."""
    before = sum(served.engine_metrics("vllm:generation_tokens_total").values())
    assert len("".join(served.stream("hello", 24))) == 24
    after = sum(served.engine_metrics("vllm:generation_tokens_total").values())
    assert after - before == 24  # made by these engines, not by anything in between
    answer = served.complete("abc", tokens=5)
    usage = {key: answer["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert usage == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def test_the_first_token_arrives_while_the_rest_is_still_made(served: Installed) -> None:
    """M3.6: nothing on the way buffers; when a client sees the first piece, an engine still works on the answer."""
    pieces = served.stream("tell me more", 1200)
    next(pieces)
    assert sum(served.engine_metrics("vllm:num_requests_running").values()) == 1
    pieces.close()  # type: ignore[attr-defined]

    def idle() -> bool:
        return sum(served.engine_metrics("vllm:num_requests_running").values()) == 0

    served.wait("the engine to notice that its client has gone", idle, timeout_s=60.0)


def test_the_router_sends_a_prefix_where_it_is_cached(served: Installed) -> None:
    """M3/M4.3: prompts that share a long beginning meet in one of the engines.

    That both get requests is seen where a stream outlives its engine: idle engines are not taken in turns, the router
    goes by what it sent before.
    """
    prefix = "the same long beginning of a prompt, " * 20

    def made() -> dict[str, float]:
        return served.engine_metrics("vllm:prompt_tokens_total")

    before = made()
    for number in range(6):
        served.complete(f"{prefix} {number}")
    changed = [name for name, count in made().items() if count > before[name]]
    assert len(changed) == 1
    assert sum(served.engine_metrics("vllm:prefix_cache_hits_total").values()) >= 5 * (len(prefix) - CPU_BLOCK)


def test_prometheus_scrapes_every_part(served: Installed) -> None:
    """With the labels that Firsttoken's queries expect."""
    prometheus = served.cluster.prometheus
    assert prometheus is not None
    query = "count by (role) (up{job='pods', firsttoken_service='" + SERVICE + "'} == 1)"

    def all_up() -> bool:
        counted = {one.labels.get("role"): one.value for one in prometheus.query(query)}
        return counted == {"serve": 2, "router": 2, "gateway": 2}

    served.wait("all parts to be scraped", all_up, timeout_s=60.0)
    (revision,) = prometheus.query("count by (firsttoken_revision) (vllm:num_requests_running{namespace='default'})")
    assert revision.labels["firsttoken_revision"] == served.service()["status"]["revision"]["stable"]
    assert prometheus.await_sample("sum(firsttoken_operator_reconciles_total{namespace='firsttoken-system'}) > 0")


def test_K1_the_standby_takes_over_when_the_leader_is_killed(served: Installed) -> None:
    """`kill -9`: no good-bye. A change made at that moment is carried out by the other pod."""
    old = served.leader()
    os.kill(process_of(old), signal.SIGKILL)
    started = time.monotonic()
    served.apply_example({"scaling": {"replicas": 1}})
    served.wait("the standby to lead", lambda: served.leader() not in ("", old), timeout_s=60.0)
    print(f"the standby leads {time.monotonic() - started:.1f} s after the leader was killed")
    served.wait("its first decision", lambda: len(served.pods("serve")) == 1, timeout_s=60.0)


def test_a_stream_outlives_the_scale_down_of_its_engine(served: Installed) -> None:
    """Both engines stream; one of them is sent away, and both answers come to their end."""
    served.apply_example({"scaling": {"replicas": 2}})
    served.wait_ready()
    prompts = [served.stream(f"{number} {'x' * number * 50}", 1000) for number in range(8)]
    heads = [next(prompt) for prompt in prompts]
    running = served.engine_metrics("vllm:num_requests_running")
    assert min(running.values()) > 0, f"one engine has nothing to do: {running}"
    served.apply_example({"scaling": {"replicas": 1}})
    served.wait("one engine to be sent away", lambda: len(served.pods("serve")) == 1, timeout_s=60.0)
    answers = [head + "".join(rest) for head, rest in zip(heads, prompts, strict=True)]
    assert [len(answer) for answer in answers] == [1000] * 8
    served.wait_ready()


def test_a_spec_edit_moves_users_to_a_new_revision_and_drops_nobody(served: Installed) -> None:
    """The new revision's engine comes up beside the old one; users stream all the while."""
    old = served.wait_ready()["status"]["revision"]["stable"]
    with asking(served) as clients:
        served.apply_example(
            {"scaling": {"replicas": 1}, "engine.pins.maxNumSeqs": 8, "rollout": {"drainTimeout": "5s"}}
        )
        served.wait("the edit to be seen", lambda: served.service()["status"]["revision"]["desired"] != old)
        new = served.wait_ready()["status"]["revision"]["stable"]
        during = clients.answers
        served.wait("answers by the new revision", lambda: clients.answers > during + 5)
    assert new != old
    assert clients.faults == []
    arguments = served.pods("serve")[0]["spec"]["containers"][0]["args"]
    assert "--max-num-seqs=8" in arguments
    served.wait("the old pods to be gone", lambda: old not in served.cluster.kubectl("get", "pods"), timeout_s=120.0)


def test_a_bad_request_is_answered_by_vllm_and_hurts_nobody(served: Installed) -> None:
    """The reason reaches the client through Envoy and the router."""
    with pytest.raises(Exception, match="answered 404"):
        chat.ask(served.url, "/v1/completions", {"model": "another", "prompt": "a"})
    with pytest.raises(Exception, match="answered 400"):
        chat.ask(served.url, "/v1/completions", {"model": MODEL, "prompt": "x" * 4000, "max_tokens": 4})
    assert served.complete("still here")["choices"][0]["text"]


def test_deletion_leaves_nothing(served: Installed) -> None:
    """kubectl delete: pods, Services, ConfigMaps and records go; the operator and its definitions stay."""
    served.cluster.kubectl("delete", "infsvc", SERVICE, "--timeout=120s")

    def gone() -> bool:
        left = served.cluster.kubectl(
            "get", "all,cm,sa,pdb,role,rolebinding,infrev", "-l", f"firsttoken.dev/service={SERVICE}"
        )
        return not left.strip()

    served.wait("everything of the service to be gone", gone, timeout_s=360.0)
    assert len(served.cluster.client.list("v1", "Pod", namespace=NAMESPACE)) == 2
