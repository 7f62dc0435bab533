"""A played pod's files and words."""

from pathlib import Path
from typing import Any

from firsttoken_local.player.volumes import PodFolder, write_volume

POD: dict[str, Any] = {
    "status": {"podIP": "10.244.1.7"},
    "spec": {
        "containers": [
            {
                "volumeMounts": [
                    {"name": "bootstrap", "mountPath": "/etc/envoy/bootstrap"},
                    {"name": "dynamic", "mountPath": "/etc/envoy/dynamic"},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
                ]
            }
        ],
        "volumes": [
            {"name": "bootstrap", "configMap": {"name": "a-gateway-1234"}},
            {"name": "dynamic", "configMap": {"name": "a-gateway-routes"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    },
}


def test_a_volume_changes_as_a_whole(tmp_path: Path) -> None:
    """By one rename of ``..data``, as the kubelet does; what was read before stays whole for who has it open."""
    folder = tmp_path / "volume"
    write_volume(folder, {"a": "1", "b": "1"})
    opened = (folder / "a").open()
    write_volume(folder, {"a": "2", "c": "2"})
    assert {path.name: path.read_text() for path in folder.glob("[!.]*")} == {"a": "2", "c": "2"}
    assert opened.read() == "1"
    opened.close()
    assert (folder / "a").readlink() == Path("..data") / "a"
    assert len([path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]) == 1


def test_words_are_translated_to_folders_and_to_the_pod_s_address(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path, POD)
    assert folder.translated("--config-path /etc/envoy/bootstrap/x") == f"--config-path {tmp_path}/bootstrap/x"
    assert folder.translated("--host=0.0.0.0 http://127.0.0.1:8000/metrics /tmp/x") == (
        "--host=10.244.1.7 http://10.244.1.7:8000/metrics /tmp/x"
    )
    assert folder.path("/etc/envoy/dynamic") == tmp_path / "dynamic"
    assert folder.path("/tmp") is None  # noqa: S108 - no ConfigMap


def test_a_volume_that_is_as_it_should_be_is_not_touched(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path, POD)
    folder.sync("dynamic", {"routes.json": "at 0.0.0.0"}, translate=False)
    before = (tmp_path / "dynamic" / "..data").stat(follow_symlinks=False).st_ino
    folder.sync("dynamic", {"routes.json": "at 0.0.0.0"}, translate=False)
    assert (tmp_path / "dynamic" / "..data").stat(follow_symlinks=False).st_ino == before
    assert (tmp_path / "dynamic" / "routes.json").read_text() == "at 0.0.0.0"
    folder.sync("bootstrap", {"bootstrap.json": "at 0.0.0.0"}, translate=True)
    assert (tmp_path / "bootstrap" / "bootstrap.json").read_text() == "at 10.244.1.7"
