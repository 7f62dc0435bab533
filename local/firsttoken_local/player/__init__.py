"""What fake nodes' pods do: a program for each pod of a service, on the pod's own address.

Envoy and vllm-router are the real ones, started with the arguments and files of their pods. Engines are played by
:mod:`firsttoken_local.engine_server`. All of them run in a network namespace in which every pod address is local
(AnyIP), so nothing of this machine's network is touched and no root is needed where user namespaces are allowed.
The namespace can't reach the machine's loopback: two unix sockets lead to the API server and back out.
"""

PROCESS, BRIDGE = "player", "player-bridge"
FOLDER = "player"  # below the state directory; also the working directory of the sockets, whose paths must be short
API_SOCKET, OUT_SOCKET = f"{FOLDER}/api.sock", f"{FOLDER}/out.sock"
SPECIFICATION = f"{FOLDER}/player.json"
# firsttoken.dev/role of the pods that are played. Not prefill and decode: no KV is fetched from another pod here.
ROLES = ("serve", "router", "gateway")
