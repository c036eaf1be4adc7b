{{/*
A value as TOML. Helm reads numbers of YAML as floats; whole ones are written as integers, which bloomguard takes for either.
*/}}
{{- define "bloomguard.toml.value" -}}
{{- if kindIs "string" . -}}{{ toRawJson . }}
{{- else if kindIs "bool" . -}}{{ . }}
{{- else if kindIs "slice" . -}}
[{{ range $i, $item := . }}{{ if $i }}, {{ end }}{{ include "bloomguard.toml.value" $item }}{{ end }}]
{{- else if kindIs "map" . -}}
{ {{- $comma := "" -}}{{ range $key, $item := . }}{{ $comma }} {{ include "bloomguard.toml.key" $key }} = {{ include "bloomguard.toml.value" $item }}{{ $comma = "," }}{{ end }} }
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{- define "bloomguard.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ toRawJson . }}{{- end -}}
{{- end -}}

{{/* A table: its own values first, then its tables, each under its header. Takes path and table. */}}
{{- define "bloomguard.toml.table" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "bloomguard.toml.key" $key }} = {{ include "bloomguard.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $inner := append $path (include "bloomguard.toml.key" $key) }}
{{- $own := false -}}
{{- range $value -}}{{- if not (kindIs "map" .) -}}{{- $own = true -}}{{- end -}}{{- end }}
{{- if $own }}

[{{ join "." $inner }}]
{{- end }}
{{- include "bloomguard.toml.table" (dict "path" $inner "table" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a plain `helm install` serves. */}}
{{- define "bloomguard.demoKeyspaces" -}}
demo:
  key: text
  freshness: static
  filter:
    expected_keys: 3
  backend:
    kind: set
  source:
    kind: file
    path: /etc/bloomguard/config/demo-keys.txt
{{- end -}}

{{- define "bloomguard.isDemo" -}}
{{- if not .Values.config.keyspaces -}}true{{- end -}}
{{- end -}}

{{/* The active keyspaces, as YAML. */}}
{{- define "bloomguard.keyspaces" -}}
{{- if include "bloomguard.isDemo" . -}}{{ include "bloomguard.demoKeyspaces" . }}{{- else -}}{{ toYaml .Values.config.keyspaces }}{{- end -}}
{{- end -}}

{{/* Whether the data port demands a token; tokens for the admin listener alone do not count. Empty: no. */}}
{{- define "bloomguard.demandsToken" -}}
{{- if .Values.auth.existingSecret -}}true{{- end -}}
{{- range (default dict .Values.config.server).tokens -}}{{- if or (has "read" .scopes) (has "write" .scopes) -}}true{{- end -}}{{- end -}}
{{- end -}}

{{/* bloomguard.toml */}}
{{- define "bloomguard.config" -}}
{{- include "bloomguard.checks" . -}}
{{- $standalone := eq .Values.mode "standalone" -}}
{{- $server := deepCopy (default dict .Values.config.server) -}}
{{- $_ := set $server "listen" (printf "%s:%v" ($standalone | ternary "0.0.0.0" "127.0.0.1") .Values.ports.data) -}}
{{- $_ := set $server "telemetry_listen" (printf "0.0.0.0:%v" .Values.ports.telemetry) -}}
{{- $_ := set $server "admin_listen" (printf "127.0.0.1:%v" .Values.ports.admin) -}}
{{- $_ := set $server "data_dir" "/var/lib/bloomguard" -}}
{{- $_ := set $server "drain_timeout" (printf "%vs" .Values.drainTimeoutSeconds) -}}
{{- if .Values.auth.existingSecret -}}
{{- $_ := set $server "token_file" (printf "/etc/bloomguard/secrets/%s/%s" .Values.auth.existingSecret .Values.auth.key) -}}
{{- else if and $standalone (not (include "bloomguard.demandsToken" .)) -}}
{{- $_ := set $server "allow_unauthenticated" true -}}
{{- end -}}
{{- $table := dict "server" $server "keyspaces" (include "bloomguard.keyspaces" . | fromYaml) -}}
{{- with .Values.config.log -}}{{- $_ := set $table "log" . -}}{{- end -}}
{{- with .Values.config.redis -}}{{- $_ := set $table "redis" . -}}{{- end -}}
{{- include "bloomguard.toml.table" (dict "path" list "table" $table) | trim }}
{{ end -}}

{{/* Every file of the ConfigMap. */}}
{{- define "bloomguard.configFiles" -}}
bloomguard.toml: |
  {{- include "bloomguard.config" . | trim | nindent 2 }}
{{- if include "bloomguard.isDemo" . }}
demo-keys.txt: |
  alice
  bob
  carol
{{- end }}
{{- range $name, $text := .Values.files }}
{{ $name }}: {{ toJson $text }}
{{- end }}
{{- end -}}
