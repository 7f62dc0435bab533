{{- /* What the schema can't say: values that contradict each other, or what is in the cluster. */ -}}
{{- define "firsttoken.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) -}}
{{- fail "replicas: more than one operator needs leaderElection.enabled: true; otherwise they work against each other" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled: it selects the metrics Service; set metrics.service.enabled: true" -}}
{{- end -}}
{{- include "firsttoken.checkExtraArgs" . -}}
{{- include "firsttoken.checkOtherReleases" . -}}
{{- end -}}

{{- /* The flags of deployment.yaml, and where each has its value; tests/chart holds the two equal. */ -}}
{{- define "firsttoken.flags" -}}
debug: set logLevel instead
engine-image: set workloadImages.engine instead
envoy-image: set workloadImages.envoy instead
leader-elect: set leaderElection.enabled instead
leader-election-id: set leaderElection.id instead
leader-election-namespace: leave it out, the Lease is in the release's namespace
liveness-port: leave it out, the probes ask port 8080
metrics-port: leave it out, the Service and the monitors ask port 9090
namespace: set watchNamespaces instead
no-leader-elect: set leaderElection.enabled instead
prometheus-interval: set prometheus.intervalSeconds instead
prometheus-url: set prometheus.url instead
prometheus-window: set prometheus.windowSeconds instead
router-image: set workloadImages.router instead
workers: set workers instead
{{- end -}}

{{- /* The last flag wins, so one in extraArgs would undo what is checked above and what the roles are made for. The
operator takes abbreviations, too. */ -}}
{{- define "firsttoken.checkExtraArgs" -}}
{{- range $argument := .Values.extraArgs -}}
{{- $name := $argument | splitList "=" | first | trimPrefix "--" -}}
{{- range $flag, $remedy := include "firsttoken.flags" $ | fromYaml -}}
{{- if hasPrefix $name $flag -}}
{{- fail (printf "extraArgs: the chart itself renders --%s, so %s can't be given here: %s" $flag $argument $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Two operators that serve all namespaces work against each other. Without a cluster (`helm template`, Argo CD)
lookup finds nothing. Without rbac.create there is no binding, and whoever installs may have no right to list them. */ -}}
{{- define "firsttoken.checkOtherReleases" -}}
{{- if and .Values.rbac.create (not .Values.watchNamespaces) -}}
{{- $bindings := lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "" -}}
{{- range $binding := $bindings.items -}}
{{- $labels := default dict $binding.metadata.labels -}}
{{- if eq (default "" (index $labels "firsttoken.dev/serves")) "all-namespaces" -}}
{{- $name := index $labels "app.kubernetes.io/instance" -}}
{{- $namespace := (first $binding.subjects).namespace -}}
{{- if or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace) -}}
{{- $other := printf "release %s in namespace %s serves all namespaces already" $name $namespace -}}
{{- fail (printf "watchNamespaces: %s; name those that this one is to serve, or uninstall the other" $other) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
