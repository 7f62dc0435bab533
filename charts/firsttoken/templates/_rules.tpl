{{- /* What the operator does with objects in the namespaces it serves; tests/chart holds this equal to its code. */ -}}
{{- define "firsttoken.rules" -}}
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices]
  verbs: [get, list, watch]
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices/status]
  verbs: [patch]
# Only used where the admission plug-in OwnerReferencesPermissionEnforcement is on (OpenShift): children block the
# deletion of their service.
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices/finalizers]
  verbs: [update]
- apiGroups: [firsttoken.dev]
  resources: [inferencerevisions]
  verbs: [get, list, watch, create, patch, delete]
# What was measured of one.
- apiGroups: [firsttoken.dev]
  resources: [inferencerevisions/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# vllm-router's own Role. No escalate, no bind: the operator can hand out only what it may do itself, which is reading
# pods (below).
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
# patch: an annotation that makes the kubelet bring a changed ConfigMap at once. get and watch: handed on to vllm-router.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- end -}}

{{- /* What is cluster-wide by its nature. */ -}}
{{- define "firsttoken.clusterRules" -}}
- apiGroups: [firsttoken.dev]
  resources: [acceleratorprofiles]
  verbs: [get, list, watch{{ if .Values.acceleratorCatalogue.install }}, create, patch{{ end }}]
# Definitions that come later (the Gateway API) are noticed without a restart.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- if .Values.watchNamespaces }}
# A watched namespace that is deleted and made anew is noticed.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
{{- end }}
{{- end -}}
