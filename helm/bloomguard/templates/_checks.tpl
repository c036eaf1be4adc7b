{{/* Rejects configurations that cannot keep their promise, before they are installed. */}}
{{- define "bloomguard.checks" -}}
{{- $instances := include "bloomguard.instances" . | int -}}
{{- $claim := .Values.dataVolume.existingClaim -}}
{{- range list "listen" "telemetry_listen" "admin_listen" "data_dir" "drain_timeout" "token_file" "allow_unauthenticated" -}}
{{- if hasKey (default dict $.Values.config.server) . -}}
{{- fail (printf "config.server.%s is the chart's: set ports, drainTimeoutSeconds, dataVolume or auth instead" .) -}}
{{- end -}}
{{- end -}}
{{- range $name, $keyspace := .Values.config.keyspaces -}}
{{- if and (eq (default "" $keyspace.freshness) "announced") (not $.Values.config.redis) -}}
{{- if gt $instances 1 -}}
{{- fail (printf "config.keyspaces.%s: freshness = \"announced\" with %d instances and no config.redis: an instance that is not told of an announce would answer 404 for a row that exists. Have one instance, or use \"polled\" or \"rebuilt\", or set config.redis" $name $instances) -}}
{{- end -}}
{{- if not $claim -}}
{{- fail (printf "config.keyspaces.%s: freshness = \"announced\" with no config.redis needs dataVolume.existingClaim: the journal of announces must outlive the pod" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $claim (gt $instances 1) -}}
{{- fail (printf "dataVolume.existingClaim with %d instances: each process needs a data directory of its own" $instances) -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") .Values.monitoring.serviceMonitor.enabled -}}
{{- fail "monitoring.serviceMonitor is for standalone mode, which has a Service: enable monitoring.podMonitor" -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") .Values.monitoring.podMonitor.enabled (not .Values.sidecar.podLabels) -}}
{{- fail "monitoring.podMonitor in sidecar mode needs sidecar.podLabels, the labels of the pods that carry the sidecar" -}}
{{- end -}}
{{- end -}}
