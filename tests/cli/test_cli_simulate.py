"""`simulate` and `accuracy`: what they show, in each form, and what they refuse."""

import io
import json
import re
import sys
import xml.dom.minidom
from pathlib import Path

import pytest
import yaml

from cli import samples
from cli.conftest import Run
from firsttoken.simulation.workload_file import read_workload
from firsttoken_operator.cli.svg import Line, bar_chart, line_chart, nice
from simulation.test_measured_runs import table

REPOSITORY = Path(__file__).parents[2]
TRACE = "arrival,prompt_tokens,output_tokens\n0,700,20\n0.5,1200,20\n1.0,9000,20\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("SERVICE", "INFEASIBLE"):
        (tmp_path / f"{name.lower()}.yaml").write_text(getattr(samples, name), encoding="utf-8")
    smaller = samples.SERVICE.replace("kb-assistant", "smaller").replace("maxCount: 8", "maxCount: 1")
    (tmp_path / "smaller.yaml").write_text(smaller, encoding="utf-8")
    several = samples.SERVICE.replace("  slos:", "  engine: {pins: {tensorParallel: 1}}\n  slos:")
    (tmp_path / "several.yaml").write_text(several, encoding="utf-8")
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8")
    (tmp_path / "bytes.csv").write_bytes(TRACE.encode().replace(b"700", b"\xff"))
    (tmp_path / "old.csv").write_bytes(TRACE.replace("1200", "0").replace("\n", "\r").encode())
    (tmp_path / "once.csv").write_text(TRACE.replace("\n0.5,", "\n0,").replace("\n1.0,", "\n0,"), encoding="utf-8")
    (tmp_path / "bursts.yaml").write_text("arrivals: {burstiness: 0.5}", encoding="utf-8")
    (tmp_path / "runs.csv").write_text("\n".join(table({"osl": "64"}, {"system": "abacus"})), encoding="utf-8")
    return tmp_path


def test_the_table_has_buckets_stages_and_replicas(cli: Run, folder: Path) -> None:
    result = cli("simulate", "-f", folder / "service.yaml", "--duration", "20s", "--rate", "4")
    assert result.code == 0
    for part in ("By prompt tokens", "1024-4096", "TTFT P50", "PREFILL", "serve 0", "GPU BUSY", "CACHE HITS", "seed 0"):
        assert part in result.out
    assert "assumed" not in result.out
    assert "assumed" in cli("simulate", "-f", folder / "service.yaml", "--duration", "1s").out


def test_json_has_every_figure_and_equal_seeds_give_equal_bytes(cli: Run, folder: Path) -> None:
    asked = ("simulate", "-f", folder / "service.yaml", "--duration", "20s", "--rate", "4", "-o", "json", "--seed")
    first, again, other = (cli(*asked, seed) for seed in ("7", "7", "8"))
    assert first.out == again.out != other.out
    found = json.loads(first.out)
    everything = found["byPromptTokens"]["all"]
    assert everything["requests"] == found["requests"] == sum(r["requests"] for r in found["replicas"])
    stages = sum(everything["stages"][name]["mean"] for name in everything["stages"])
    assert stages == pytest.approx(everything["ttftSeconds"]["mean"])
    assert found["traffic"]["seed"] == 7
    assert found["byPromptTokens"]["0-64"]["ttftSeconds"]["p95"] is None


def test_a_trace_replaces_the_workload_and_long_prompts_are_counted(cli: Run, folder: Path) -> None:
    asked = ("simulate", "-f", folder / "service.yaml", "--trace", folder / "trace.csv")
    found = json.loads(cli(*asked, "-o", "json").out)
    assert (found["requests"], found["refused"]) == (2, 1)
    shown = " ".join(cli(*asked).out.split())
    assert "1 prompt of 4096 tokens or more left out" in shown
    assert "2 requests/s, 1.33 without those left out" in shown
    assert found["traffic"]["requestsPerSecond"] == 2.0
    assert found["traffic"]["servedPerSecond"] == pytest.approx(4 / 3)


def test_requests_that_come_at_once_have_no_rate(cli: Run, folder: Path) -> None:
    header, first, second, _ = TRACE.splitlines()
    asked = ("simulate", "-f", folder / "service.yaml", "--trace", folder / "trace.csv")
    for rows, said in (([first], "trace.csv, seed 0"), ([first, second.replace("0.5", "0")], "csv, all at once, seed")):
        (folder / "trace.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
        assert said in " ".join(cli(*asked).out.split())
        assert json.loads(cli(*asked, "-o", "json").out)["traffic"]["requestsPerSecond"] is None
        result = cli(*asked, "--rate", "5")
        assert result.code == 2
        assert "all requests arrive at once, so --rate can't stretch them" in result.err


def test_a_trace_may_come_from_standard_input(cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = folder / "service.yaml"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TRACE.encode())))
    found = cli("simulate", "-f", service, "--trace", "-", "-o", "json")
    assert found.code == 0
    assert json.loads(found.out)["traffic"]["source"] == "<stdin>"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(service.read_bytes())))
    result = cli("simulate", "-f", "-", "--trace", "-")
    assert result.code == 2
    assert "standard input can be read only once" in result.err


def test_two_services_get_the_same_requests_side_by_side(cli: Run, folder: Path) -> None:
    asked = ("simulate", "-f", folder / "service.yaml", "--compare", folder / "smaller.yaml", "--duration", "30s")
    shown = cli(*asked, "--rate", "6").out
    assert re.search(r"WHAT +kb-assistant +smaller +CHANGE", shown)
    one, two = json.loads(cli(*asked, "--rate", "6", "-o", "json").out)["services"]
    assert one["requests"] == two["requests"]
    assert (two["service"], two["gpus"]) == ("smaller", 1)


def test_the_page_stands_alone_and_its_charts_are_well_formed(cli: Run, folder: Path) -> None:
    steady = "".join(f"{n / 4},1000,100\n" for n in range(60))
    (folder / "steady.csv").write_text("arrival,prompt_tokens,output_tokens\n" + steady, encoding="utf-8")
    page = cli("simulate", "-f", folder / "several.yaml", "--trace", folder / "steady.csv", "-o", "html").out
    assert page.startswith("<!doctype html>")
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    titles = " ".join(xml.dom.minidom.parseString(c).documentElement.getAttribute("aria-label") for c in charts)  # noqa: S318
    for part in ("TTFT by prompt tokens", "Compute", "close up", "waiting", "running", "KV cache"):
        assert part in titles
    near = next(c for c in charts if "close up" in c)
    starts = {line.split(",")[0] for line in re.findall(r'points="([^"]*)"', near)}
    assert len(starts) == 1 < near.count("<polyline")  # all replicas over the same stretch of time
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\"<]*", page)) == {"http://www.w3.org/2000/svg"}


BURSTS = """
arrivals: {requestsPerSecond: 5, burstiness: 0.3, swing: 0.5, periodSeconds: 20, peakSeconds: 10}
promptTokens: {low: 100, high: 200}
outputTokens: {p50: 20, p95: 40}
prefixes: {tokens: 64, count: 3, zipf: 1, share: 0.5}
router: RoundRobin
"""
CANARY = "canary: {weight: 0.25, engine: {tokenBudget: 256, prefillShare: 0.5, watermark: 0.1}}"
PRIORITIES = "{priorities: [{priority: 0, share: 0.5}, {priority: 5, share: 0.5}], engine: {priorities: true}}"


def test_a_workload_file_says_what_arrives_and_who_serves_it(cli: Run, folder: Path) -> None:
    (folder / "bursts.yaml").write_text(BURSTS, encoding="utf-8")
    asked = ("simulate", "-f", folder / "service.yaml", "--duration", "60s", "-o", "json")
    found, plain = (json.loads(cli(*asked, *more).out) for more in (("--workload", folder / "bursts.yaml"), ()))
    assert found["traffic"]["requestsPerSecond"] == 5
    counts = {name: bucket["requests"] for name, bucket in found["byPromptTokens"].items()}
    assert counts["64-256"] == counts["all"] == pytest.approx(300, rel=0.3)
    assert plain["byPromptTokens"]["64-256"]["requests"] == 0
    assert 0.1 < found["byPromptTokens"]["all"]["hitRate"] < 0.4
    taken = [one["requests"] for one in found["replicas"]]
    assert max(taken) - min(taken) <= 1  # round robin


def test_a_canary_gets_its_share_and_is_shown_beside_stable(cli: Run, folder: Path) -> None:
    (folder / "canary.yaml").write_text(CANARY, encoding="utf-8")
    asked = ("simulate", "-f", folder / "service.yaml", "--duration", "60s", "--rate", "8")
    asked += ("--workload", folder / "canary.yaml")
    arms = json.loads(cli(*asked, "-o", "json").out)["arms"]
    numbers = {arm: found["all"]["requests"] for arm, found in arms.items()}
    assert numbers["canary"] / sum(numbers.values()) == pytest.approx(0.25, abs=0.06)
    assert arms["canary"]["all"]["ttftSeconds"] != arms["stable"]["all"]["ttftSeconds"]
    assert re.search(r"WHAT +stable +canary +CHANGE", cli(*asked).out)


def test_clients_send_when_they_are_answered(cli: Run, folder: Path) -> None:
    (folder / "clients.yaml").write_text("clients: {count: 4, requestsEach: 5, thinkSeconds: 1}", encoding="utf-8")
    asked = ("--workload", folder / "clients.yaml", "-o", "json")
    found = json.loads(cli("simulate", "-f", folder / "smaller.yaml", *asked).out)
    assert found["requests"] == 20
    assert found["replicas"][0]["peakRunning"] <= 4
    assert found["seconds"] > 4  # of thinking


def test_every_example_of_a_workload_file_can_be_read() -> None:
    found = sorted((REPOSITORY / "examples" / "workloads").glob("*.yaml"))
    assert len(found) >= 4
    for path in found:
        read_workload(yaml.safe_load(path.read_text(encoding="utf-8")), path.name)


def test_priorities_count_where_the_engines_have_them_and_are_refused_elsewhere(cli: Run, folder: Path) -> None:
    (folder / "priorities.yaml").write_text(PRIORITIES, encoding="utf-8")
    asked = ("simulate", "-f", folder / "service.yaml", "-o", "json")
    assert cli(*asked, "--duration", "20s", "--rate", "4", "--workload", folder / "priorities.yaml").code == 0
    (folder / "urgent.csv").write_text(
        "arrival,prompt_tokens,output_tokens,priority\n0,700,20,5\n0.1,700,20,0\n", encoding="utf-8"
    )
    result = cli(*asked, "--trace", folder / "urgent.csv")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "has priorities, and the engines serve first come, first served" in result.err
    (folder / "on.yaml").write_text("engine: {priorities: true}", encoding="utf-8")
    assert cli(*asked, "--trace", folder / "urgent.csv", "--workload", folder / "on.yaml").code == 0


def test_more_than_is_served_is_said_and_not_shown_as_steady(cli: Run, folder: Path) -> None:
    asked = ("simulate", "-f", folder / "smaller.yaml", "--duration", "40s", "--rate")
    over, calm = (json.loads(cli(*asked, rate, "-o", "json").out) for rate in ("60", "2"))
    assert (over["queueGrows"], calm["queueGrows"]) == (True, False)
    assert over["queued"]["atLastArrival"] > over["queued"]["halfway"] > 0
    assert "more arrives than is served" in cli(*asked, "60").out
    begin, end = calm["utilizationWindowSeconds"]
    assert 0 < begin < end <= 40


def test_a_shipped_trace_has_a_name_and_two_services_of_one_name_are_told_apart(cli: Run, folder: Path) -> None:
    asked = ("simulate", "-f", folder / "service.yaml", "--trace", "azure_conversation_2023.csv", "--duration", "30s")
    assert json.loads(cli(*asked, "-o", "json").out)["requests"] > 10
    shown = cli(*asked, "--compare", folder / "service.yaml").out
    assert re.search(r"WHAT +kb-assistant \(1\) +kb-assistant \(2\) +CHANGE", shown)
    for what in ("queue P95", "prefill P95", "CACHE HITS", "PREEMPTED"):
        assert what in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arrivals: {burstiness: 0}", "arrivals.burstiness: Input should be greater than 0"),
        ("arrivals: {rate: 3}", "arrivals.rate: is not known"),
        ("promptTokens: {p50: 5}", "promptTokens: give p50 and p95, or low and high"),
        ("priorities: [{priority: 0, share: 0.5}]", "don't add up to 1"),
        ("router: Fastest", "router: Input should be 'RoundRobin'"),
        ("canary: {weight: 1, engine: {}}", "canary.weight: Input should be less than 1"),
        ("engine: {tokenBudget: 100000}", "tokenBudget is 100000, above the plan's"),
        ("[1]", "holds no mapping"),
        ("a: {", "workload.yaml:"),
    ],
)
def test_a_wrong_workload_file_is_one_line(cli: Run, folder: Path, text: str, said: str) -> None:
    (folder / "workload.yaml").write_text(text, encoding="utf-8")
    result = cli("simulate", "-f", folder / "service.yaml", "--workload", folder / "workload.yaml")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--trace", "{}/once.csv", "--rate", "3"), 2, "all requests arrive at once, so --rate can't stretch them"),
        (("--trace", "{}/once.csv", "--workload", "{}/bursts.yaml"), 2, "--trace and arrivals of --workload both say"),
        (("--rate", "0"), 2, "--rate is 0: give requests a second, above 0"),
        (("--rate", "nan"), 2, "--rate is nan"),
        (("--rate", "1e7"), 2, "--rate is 1e+07: give requests a second, above 0 and at most 1,000,000"),
        (("--rate", "1e-300"), 2, "no request arrives in 600 s at 1e-300 a second: give a longer --duration"),
        (("--rate", "1e-300", "--trace", "{}/trace.csv"), 2, "lasts over ten years: give a higher --rate"),
        (("--trace", "/dev/zero"), 2, "--trace /dev/zero: holds NUL bytes"),
        (("--trace", "{}/bytes.csv"), 2, "bytes.csv: not UTF-8 text (byte 0xff in line 2)"),
        (("--trace", "{}/old.csv"), 2, "old.csv:3: prompt_tokens is '0'"),
        (("--seed", "-1"), 2, "--seed is -1"),
        (("--duration", "soon"), 2, "--duration: not a duration: 'soon'"),
        (("--duration", "0s"), 2, "--duration is 0"),
        (("--duration", "9999h", "--rate", "1000"), 2, "give a shorter --duration"),
        (("--trace", "{}/none.csv"), 2, "none.csv: no such file"),
        (("--trace", "{}"), 2, "is a folder"),
        (("--trace", "{}/service.yaml"), 2, "service.yaml:"),
        (("--compare", "{}/infeasible.yaml"), 1, "too-big: infeasible (Memory)"),
        (("-f", "{}/smaller.yaml"), 2, "holds 2 services (kb-assistant, smaller)"),
    ],
)
def test_bad_input_is_one_line(cli: Run, folder: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    given = [a.format(folder) for a in arguments]
    result = cli("simulate", "-f", folder / "service.yaml", *given)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert said in result.err


@pytest.mark.parametrize(
    "command", [("simulate", "-f", "x.yaml"), ("accuracy", "--data", "x.csv"), ("plan", "-f", "x.yaml", "--simulate")]
)
def test_without_the_extra_one_line_says_how_to_install_it(
    cli: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    result = cli(*command)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "simulating needs more packages" in result.err
    assert "make install" in result.err


def test_accuracy_shows_errors_by_model_and_gpu_and_lists_what_it_cant_predict(cli: Run, folder: Path) -> None:
    result = cli("accuracy", "--data", folder / "runs.csv")
    assert result.code == 0
    assert "1 of 2 rows predicted" in result.out
    assert "meta-llama/Llama-3.1-70B" in result.out
    assert "line 3: system 'abacus' is not known" in " ".join(result.out.split())
    found = json.loads(cli("accuracy", "--data", folder / "runs.csv", "-o", "json").out)
    assert (found["rows"], found["predicted"], len(found["groups"])) == (2, 1, 1)
    assert found["ttftMape"] == found["groups"][0]["ttft"]["mean"] > 0
    assert found["unpredicted"][0]["line"] == 3


def test_accuracy_says_no_when_nothing_could_be_predicted(cli: Run, folder: Path) -> None:
    (folder / "runs.csv").write_text("\n".join(table({"system": "abacus"})), encoding="utf-8")
    assert cli("accuracy", "--data", folder / "runs.csv").code == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [("a,b\n1,2\n", "no column system"), (table()[0] + "\n", "no rows"), ("", "no column"), ("\0", "runs.csv")],
)
def test_accuracy_refuses_another_file_in_one_line(cli: Run, folder: Path, content: str, said: str) -> None:
    (folder / "runs.csv").write_text(content, encoding="utf-8")
    result = cli("accuracy", "--data", folder / "runs.csv")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.3, 0.5), (1, 1), (2.1, 2.5), (730, 1000), (float("nan"), 1)])
def test_axes_end_at_round_numbers(value: float, top: float) -> None:
    assert nice(value) == pytest.approx(top)


def test_charts_escape_names_and_leave_gaps_for_what_is_missing() -> None:
    line = Line("<b>&", (0.0, 1.0, float("nan"), 2.0), 0.0, 1.0)
    for text in (
        line_chart("a < b", [line], unit="ms"),
        bar_chart("a < b", [("<x>", (1.0, float("nan")))], ["p", "q"], unit=""),
    ):
        root = xml.dom.minidom.parseString(text).documentElement  # noqa: S318
        assert root.getAttribute("aria-label") == "a < b"
    assert line_chart("t", [line], unit="").count("<polyline") == 2
    assert line_chart("t", [], unit="").count("<polyline") == 0


class TestCandidatesOfAPlan:
    """`plan --simulate`."""

    def test_the_table_follows_the_plan(self, cli: Run, folder: Path) -> None:
        bare = cli("plan", "-f", folder / "service.yaml")
        result = cli("plan", "-f", folder / "service.yaml", "--simulate")
        assert result.code == bare.code == 0
        assert result.out.startswith(bare.out.rstrip())
        for part in ("Simulated at", "CANDIDATE", "the plan", "1024-4096", "TPOT P95", "kept"):
            assert part in result.out.removeprefix(bare.out.rstrip())

    def test_json_has_one_key_more_and_is_the_same_every_time(self, cli: Run, folder: Path) -> None:
        bare = json.loads(cli("plan", "-f", folder / "service.yaml", "-o", "json").out)
        first, again = (cli("plan", "-f", folder / "service.yaml", "--simulate", "-o", "json").out for _ in range(2))
        assert first == again
        found = json.loads(first)
        simulated = found.pop("simulated")
        assert found == bare
        chosen = simulated["candidates"][0]
        assert (chosen["name"], chosen["gpus"], chosen["keepsSLOs"]) == ("the plan", bare["gpus"], not chosen["missed"])
        assert chosen["ttftSeconds"]["p50"] < chosen["ttftSeconds"]["p95"]
        assert sum(b["requests"] for b in chosen["byPromptTokens"].values()) == simulated["requests"]

    def test_what_is_infeasible_stays_as_it_is(self, cli: Run, folder: Path) -> None:
        for form in ("json", "table"):
            bare = cli("plan", "-f", folder / "infeasible.yaml", "-o", form)
            result = cli("plan", "-f", folder / "infeasible.yaml", "--simulate", "-o", form)
            assert (result.code, result.out) == (bare.code, bare.out)
            assert result.code == 1
