"""The options of `firsttoken`, each once: the same name means the same in every command."""

from enum import StrEnum
from typing import Annotated

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


Files = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", metavar="FILE", help="File, folder or - (standard input); repeatable.", show_default=False
    ),
]
Recursive = Annotated[
    bool, typer.Option("--recursive", "-R", help="Look into the folders of a folder, too; not into hidden ones.")
]
Profiles = Annotated[
    list[str],
    typer.Option(
        "--profiles",
        metavar="FILE",
        help="File or folder with AcceleratorProfiles beside the built-in catalogue; repeatable.",
        show_default=False,
    ),
]
ModelConfig = Annotated[
    str | None,
    typer.Option(
        "--model-config",
        metavar="FILE",
        help="config.json of a model that is not in the catalogue; default: the hub is asked for hf:// models.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAMESPACE",
        help="Namespace; default: the kubeconfig context's.",
        show_default=False,
    ),
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
    typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG or ~/.kube/config.", show_default=False),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.", show_default=False)
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Then a line for each change, until interrupted.")]
Serving = Annotated[bool, typer.Option("--serving", help="As it is once the revision serves: the gateway leads to it.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]
Version = Annotated[bool, typer.Option("--version", help="Same as the command version.")]
OutputText = Annotated[TextOutput, typer.Option("--output", "-o", metavar="text|json", help="Form of the result.")]
OutputPlan = Annotated[
    PlanOutput, typer.Option("--output", "-o", metavar="table|json|yaml", help="Form of the result.")
]
OutputRender = Annotated[RenderOutput, typer.Option("--output", "-o", metavar="yaml|json", help="Form of the result.")]


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
    typer.Option(
        "--data",
        metavar="FILE",
        help="CSV of measured runs in the form of AIConfigurator's e2e_vllm.",
        show_default=False,
    ),
]
Compare = Annotated[
    str | None,
    typer.Option(
        "--compare",
        metavar="FILE",
        help="Another service, under the same requests beside the first.",
        show_default=False,
    ),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Requests from a CSV or JSONL file instead of spec.workload.",
        show_default=False,
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="TIME",
        help="How long requests arrive, such as 10m; default: 10m, or the whole trace.",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Requests a second; default: the spec's, else the plan's, else the trace's own.",
        show_default=False,
    ),
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Run the candidates in virtual time too, under the same requests.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds give equal results.")]
OutputSimulation = Annotated[
    SimulationOutput, typer.Option("--output", "-o", metavar="table|json|html", help="Form of the result.")
]
WorldFile = Annotated[
    str | None,
    typer.Option(
        "--world",
        metavar="FILE",
        help="What happens meanwhile, and on which nodes; default: nothing, on as many as are needed.",
        show_default=False,
    ),
]
WorldDuration = Annotated[
    str | None,
    typer.Option(
        "--duration", metavar="TIME", help="Virtual time, such as 6h; default: the world's, or 1h.", show_default=False
    ),
]
WorldSeed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", help="Equal seeds give equal results; default: the world's, or 0.", show_default=False
    ),
]
OutputTable = Annotated[TableOutput, typer.Option("--output", "-o", metavar="table|json", help="Form of the result.")]
