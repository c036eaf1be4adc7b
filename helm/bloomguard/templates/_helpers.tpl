{{- define "bloomguard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "bloomguard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "bloomguard.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "bloomguard.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bloomguard.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "bloomguard.labels" -}}
{{ include "bloomguard.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "bloomguard.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}{{- else -}}{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}{{- end -}}
{{- end -}}

{{- define "bloomguard.serviceAccountName" -}}
{{- default (.Values.serviceAccount.create | ternary (include "bloomguard.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end -}}

{{/* Most instances at a time. */}}
{{- define "bloomguard.instances" -}}
{{- if eq .Values.mode "sidecar" -}}{{ .Values.sidecar.replicas }}
{{- else if .Values.autoscaling.enabled -}}{{ .Values.autoscaling.maxReplicas }}
{{- else -}}{{ .Values.replicas }}
{{- end -}}
{{- end -}}

{{- define "bloomguard.nativeSidecar" -}}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.native -}}true{{- end -}}
{{- end -}}
