{{/*
The container, as a list item: of initContainers where sidecar.native, else of containers.
A chart of your own passes the context of this one: include "bloomguard.sidecar.container" .Subcharts.bloomguard
*/}}
{{- define "bloomguard.sidecar.container" -}}
- {{ include "bloomguard.container" . | nindent 2 | trim }}
{{- end -}}

{{- define "bloomguard.container" -}}
{{- $native := include "bloomguard.nativeSidecar" . -}}
name: bloomguard
image: {{ include "bloomguard.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if $native }}
restartPolicy: Always
{{- end }}
args: [serve, --config, /etc/bloomguard/config/bloomguard.toml]
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- if eq .Values.mode "standalone" }}
  - name: bg-data
    containerPort: {{ .Values.ports.data }}
  {{- end }}
  - name: bg-telemetry
    containerPort: {{ .Values.ports.telemetry }}
startupProbe:
  {{- if .Values.waitForFilter }}
  {{- $period := int (.Values.startupProbe.periodSeconds | default 10) }}
  httpGet: {path: /startupz, port: bg-telemetry}
  failureThreshold: {{ divf .Values.waitForFilterSeconds $period | ceil | int }}
  {{- with omit .Values.startupProbe "failureThreshold" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- else }}
  httpGet: {path: /livez, port: bg-telemetry}
  {{- toYaml .Values.startupProbe | nindent 2 }}
  {{- end }}
livenessProbe:
  httpGet: {path: /livez, port: bg-telemetry}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: bg-telemetry}
  {{- toYaml .Values.readinessProbe | nindent 2 }}
{{- if and .Values.preStopSeconds (not $native) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ .Values.preStopSeconds }}
{{- end }}
resources:
  {{- include "bloomguard.resources" . | nindent 2 }}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
volumeMounts:
  - name: bloomguard-config
    mountPath: /etc/bloomguard/config
    readOnly: true
  - name: bloomguard-data
    mountPath: /var/lib/bloomguard
  {{- if include "bloomguard.secretSources" . }}
  - name: bloomguard-secrets
    mountPath: /etc/bloomguard/secrets
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Its volumes, as list items. */}}
{{- define "bloomguard.sidecar.volumes" -}}
- name: bloomguard-config
  configMap:
    name: {{ include "bloomguard.fullname" . }}
- name: bloomguard-data
  {{- if .Values.dataVolume.existingClaim }}
  persistentVolumeClaim:
    claimName: {{ .Values.dataVolume.existingClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .Values.dataVolume.sizeLimit | default (include "bloomguard.dataSize" .) }}
  {{- end }}
{{- with include "bloomguard.secretSources" . }}
- name: bloomguard-secrets
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Annotations of the pod: a changed setting that needs a restart makes new pods. Always present, so that your own pods
need no condition.
*/}}
{{- define "bloomguard.sidecar.annotations" -}}
{{- $read := "" -}}
{{- if eq .Values.rollOnConfigChange "always" -}}{{- $read = include "bloomguard.configFiles" . -}}
{{- else if eq .Values.rollOnConfigChange "auto" -}}{{- $read = include "bloomguard.readAtStart" . -}}
{{- end -}}
checksum/bloomguard-config: {{ $read | sha256sum }}
{{- end -}}

{{/*
What of the configuration is read at the start only: all but the keys that docs/configuration.md calls live. One that is missing here
makes pods that need not be made; one too many is told of by the log and BloomguardRestartNeeded.
*/}}
{{- define "bloomguard.readAtStart" -}}
{{- $keyspaces := dict -}}
{{- range $name, $keyspace := include "bloomguard.keyspaces" . | fromYaml -}}
{{- $kept := omit $keyspace "enforcement" "enforce_percent" "reveal_keys" "rebuild" "canary" "cache" -}}
{{- with pick (default dict $keyspace.cache) "hot_capacity" "refresh_ahead" "stale_if_error" -}}{{- $_ := set $kept "cache" . -}}{{- end -}}
{{- $_ := set $keyspaces $name $kept -}}
{{- end -}}
{{- $log := omit (default dict .Values.config.log) "level" -}}
{{- $config := set (set (deepCopy .Values.config) "keyspaces" $keyspaces) "log" $log -}}
{{- $values := dict "config" $config "files" .Values.files "ports" .Values.ports "mode" .Values.mode -}}
{{- toYaml (set (set $values "auth" .Values.auth) "drain" .Values.drainTimeoutSeconds) -}}
{{- end -}}

{{- define "bloomguard.secretSources" -}}
{{- $secrets := .Values.secrets -}}
{{- with .Values.auth -}}
{{- if .existingSecret -}}{{- $secrets = append $secrets (dict "name" .existingSecret "keys" (list .key)) -}}{{- end -}}
{{- end -}}
{{- range $i, $secret := $secrets -}}
{{- if $i }}
{{ end -}}
- secret:
    name: {{ $secret.name }}
    items:
      {{- range $secret.keys }}
      - key: {{ . }}
        path: {{ $secret.name }}/{{ . }}
      {{- end }}
{{- end -}}
{{- end -}}
