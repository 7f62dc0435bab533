{{- define "firsttoken.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 40 characters, so that "-operator-metrics" and the like stay below 63. */ -}}
{{- define "firsttoken.fullname" -}}
{{- $name := include "firsttoken.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "firsttoken.operator" -}}
{{- printf "%s-operator" (include "firsttoken.fullname" .) -}}
{{- end -}}

{{- /* Cluster-scoped names: of a namespaced release with its namespace, so that several can live in one cluster. The
hash tells release `a` in `team` from release `firsttoken` in `team-a`, which read the same; 63 characters at most. */ -}}
{{- define "firsttoken.clusterName" -}}
{{- $operator := include "firsttoken.operator" . -}}
{{- if .Values.watchNamespaces -}}
{{- $hash := printf "%s/%s" .Release.Namespace $operator | sha256sum | trunc 8 -}}
{{- printf "%s-%s" (printf "%s-%s" .Release.Namespace $operator | trunc 54 | trimSuffix "-") $hash -}}
{{- else -}}
{{- $operator -}}
{{- end -}}
{{- end -}}

{{- define "firsttoken.selector" -}}
app.kubernetes.io/name: {{ include "firsttoken.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "firsttoken.labels" -}}
{{ include "firsttoken.selector" . }}
app.kubernetes.io/part-of: firsttoken
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "firsttoken.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "firsttoken.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the ServiceAccount to use, or set serviceAccount.create to true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "firsttoken.subject" -}}
- kind: ServiceAccount
  name: {{ include "firsttoken.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "firsttoken.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The AcceleratorProfiles to apply, as YAML documents: shipped, less `exclude`, with `overrides`. */ -}}
{{- define "firsttoken.catalogue" -}}
{{- $shipped := list -}}
{{- range splitList "\n---\n" (.Files.Get "files/accelerators.yaml") -}}
{{- $profile := fromYaml . -}}
{{- with $profile.metadata -}}
{{- $shipped = append $shipped .name -}}
{{- range $field, $value := index $.Values.acceleratorCatalogue.overrides .name -}}
{{- $_ := set $profile.spec $field $value -}}
{{- end -}}
{{- if not (has .name $.Values.acceleratorCatalogue.exclude) }}
---
{{ toYaml $profile }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range concat .Values.acceleratorCatalogue.exclude (keys .Values.acceleratorCatalogue.overrides) -}}
{{- if not (has . $shipped) -}}
{{- fail (printf "acceleratorCatalogue: there is no shipped profile %q; there are %s" . (join ", " $shipped)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
