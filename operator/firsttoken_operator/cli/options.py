"""The options of `firsttoken`, each once: the same name means the same in every command."""

from enum import StrEnum
from typing import Annotated, Any

import typer


class PlanOutput(StrEnum):
    """Forms of a plan."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class TextOutput(StrEnum):
    """Forms of a report."""

    TEXT = "text"
    JSON = "json"


class RenderOutput(StrEnum):
    """Forms of manifests."""

    YAML = "yaml"
    JSON = "json"


def _value(metavar: str, text: str, *names: str) -> Any:
    """An option that takes a value and whose default the text names, where it has one."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False)


def _form(forms: type[StrEnum]) -> Any:
    return typer.Option("--output", "-o", metavar="|".join(forms), help="Form of the result.")


class Strategy(StrEnum):
    """How slices are offered: as a resource for each kind, or all as GPUs."""

    MIXED = "mixed"
    SINGLE = "single"


Files = Annotated[
    list[str],
    _value("FILE", "File, folder or - (standard input); repeatable.", "--filename", "-f"),
]
Recursive = Annotated[
    bool, typer.Option("--recursive", "-R", help="Look into the folders of a folder, too; not into hidden ones.")
]
Profiles = Annotated[
    list[str],
    _value("FILE", "File or folder with AcceleratorProfiles beside the built-in catalogue; repeatable.", "--profiles"),
]
ModelConfig = Annotated[
    str | None,
    _value(
        "FILE",
        "config.json of a model that is not in the catalogue; default: the hub is asked for hf:// models.",
        "--model-config",
    ),
]
Calibration = Annotated[
    list[str],
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="InferenceRevisions (kubectl get infrev -o yaml) whose measurements of a live fleet are used; repeatable.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    _value("NAMESPACE", "Namespace; default: the kubeconfig context's.", "--namespace", "-n"),
]
NamespaceOfNone = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of services that name none.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Table of all namespaces.")]
Name = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The InferenceService; without: a table of all.", show_default=False),
]
Kubeconfig = Annotated[
    str | None,
    _value("FILE", "Default: $KUBECONFIG or ~/.kube/config.", "--kubeconfig"),
]
Context = Annotated[str | None, _value("NAME", "Context of the kubeconfig.", "--context")]
ProfileName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The AcceleratorProfile; without: the names of all.", show_default=False),
]
Mig = Annotated[
    str | None, _value("SLICE", "Of one of its MIG slices, as nvidia-smi calls it, such as 1g.5gb.", "--mig")
]
MigStrategy = Annotated[
    Strategy, typer.Option("--mig-strategy", metavar="|".join(Strategy), help="That of NVIDIA's device plugin.")
]
SliceMemory = Annotated[
    str | None,
    _value(
        "SIZE",
        "What the slice really has, such as 4864Mi (label nvidia.com/mig-1g.5gb.memory); default: as seen elsewhere.",
        "--memory",
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Then a line for each change, until interrupted.")]
Serving = Annotated[bool, typer.Option("--serving", help="As it is once the revision serves: the gateway leads to it.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]
Version = Annotated[bool, typer.Option("--version", help="Same as the command version.")]
OutputText = Annotated[TextOutput, _form(TextOutput)]
OutputPlan = Annotated[PlanOutput, _form(PlanOutput)]
OutputRender = Annotated[RenderOutput, _form(RenderOutput)]


class TableOutput(StrEnum):
    """Forms of a rehearsal."""

    TABLE = "table"
    JSON = "json"


class SimulationOutput(StrEnum):
    """Forms of a simulation."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


MeasuredData = Annotated[
    str,
    _value("FILE", "CSV of measured runs in the form of AIConfigurator's e2e_vllm.", "--data"),
]
Compare = Annotated[
    str | None,
    _value("FILE", "Another service, under the same requests beside the first.", "--compare"),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        metavar="FILE",
        help="Arrivals, lengths, prefixes, priorities, router, engine options and a canary, from a YAML file.",
        show_default=False,
    ),
]
Trace = Annotated[
    str | None,
    _value(
        "FILE",
        "Requests from a CSV or JSONL file, - (standard input) or a shipped excerpt by name, instead of spec.workload.",
        "--trace",
    ),
]
Duration = Annotated[
    str | None,
    _value("TIME", "How long requests arrive, such as 10m; default: 10m, or the whole trace.", "--duration"),
]
Rate = Annotated[
    float | None,
    _value("N", "Requests a second; default: the spec's, else the plan's, else the trace's own.", "--rate"),
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Run the candidates in virtual time too, under the same requests.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds give equal results.")]
OutputSimulation = Annotated[SimulationOutput, _form(SimulationOutput)]
WorldFile = Annotated[
    str | None,
    _value(
        "FILE", "What happens meanwhile, and on which nodes; default: nothing, on as many as are needed.", "--world"
    ),
]
WorldDuration = Annotated[
    str | None,
    _value("TIME", "Virtual time, such as 6h; default: the world's, or 1h.", "--duration"),
]
WorldSeed = Annotated[
    int | None,
    _value("N", "Equal seeds give equal results; default: the world's, or 0.", "--seed"),
]
OutputTable = Annotated[TableOutput, _form(TableOutput)]
