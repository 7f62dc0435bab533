"""Bring the shipped AcceleratorProfiles up to date, and leave alone those that somebody edited in the cluster.

Runs in the operator's image before the operator starts: `python apply.py [CATALOGUE]`. Server-side apply without force:
the API server itself knows which fields somebody else has set to another value.
"""

import json
import logging
import sys
import time
from pathlib import Path

import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

log = logging.getLogger("catalogue")

FIELD_MANAGER = "firsttoken-catalogue"
PATIENCE_SECONDS = 120  # the definition may have been created a moment ago; the API server may be restarting
PAUSE_SECONDS = 2.0


def main(path: str) -> int:
    """Apply every profile of a file; 1 if the API server refused one or could not be reached in time."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config.load_config()
    documents = yaml.safe_load_all(Path(path).read_text(encoding="utf-8"))
    api = client.CustomObjectsApi()
    deadline = time.monotonic() + PATIENCE_SECONDS
    refused = [profile["metadata"]["name"] for profile in documents if profile and not settle(api, profile, deadline)]
    return 1 if refused else 0


def settle(api: client.CustomObjectsApi, profile: dict, deadline: float) -> bool:
    """Apply one profile, trying again what may pass; False if it was refused or time ran out."""
    name = profile["metadata"]["name"]
    while True:
        try:
            apply(api, profile)
        except client.ApiException as error:
            if error.status == 409:
                log.warning("%s: left as it is: %s", name, edits(error))
                return True
            again, why = error.status in (404, 429) or error.status >= 500, message(error)
        except HTTPError as error:
            again, why = True, f"API server not reached: {error}"
        else:
            log.info("%s: applied", name)
            return True
        if not again or time.monotonic() > deadline:
            log.error("%s: %s", name, why)
            return False
        time.sleep(PAUSE_SECONDS)


def apply(api: client.CustomObjectsApi, profile: dict) -> None:
    """One server-side apply, without force."""
    group, version = profile["apiVersion"].split("/")
    api.patch_cluster_custom_object(
        group,
        version,
        "acceleratorprofiles",
        profile["metadata"]["name"],
        profile,
        field_manager=FIELD_MANAGER,
        field_validation="Strict",
        force=False,
        _content_type="application/apply-patch+yaml",
        _request_timeout=30,
    )


def edits(error: client.ApiException) -> str:
    """Who edited which fields, from the API server's conflict."""
    try:
        causes = json.loads(error.body)["details"]["causes"]
        return "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    except (ValueError, KeyError, TypeError):
        return message(error)


def message(error: client.ApiException) -> str:
    """The API server's message."""
    try:
        return f"{error.status} {json.loads(error.body)['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("accelerators.yaml"))))
