"""`simulate` and `accuracy`: what they show, in each form, and what they refuse."""

import io
import json
import re
import sys
import xml.dom.minidom
from pathlib import Path

import pytest

from cli import samples
from cli.conftest import Run
from firsttoken_operator.cli.svg import Line, bar_chart, line_chart, nice
from simulation.test_measured_runs import table

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
        assert said in "".join(cli(*asked).out.split("\n"))
        assert json.loads(cli(*asked, "-o", "json").out)["traffic"]["requestsPerSecond"] is None
        result = cli(*asked, "--rate", "5")
        assert result.code == 2
        assert "all requests come at once, so --rate can't stretch it" in result.err


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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
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
