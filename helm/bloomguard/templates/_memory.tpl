{{/*
Bits a key of a split-block filter at a false-positive rate, rounded up to the next row: Helm has no logarithm.
*/}}
{{- define "bloomguard.bitsPerKey" -}}
{{- $rate := float64 . -}}
{{- if ge $rate 0.05 -}}7.1
{{- else if ge $rate 0.02 -}}8.8
{{- else if ge $rate 0.01 -}}10.2
{{- else if ge $rate 0.005 -}}11.7
{{- else if ge $rate 0.002 -}}13.9
{{- else if ge $rate 0.001 -}}15.8
{{- else if ge $rate 0.0005 -}}17.9
{{- else if ge $rate 0.0002 -}}21
{{- else if ge $rate 0.0001 -}}23.7
{{- else if ge $rate 0.00001 -}}35.1
{{- else if ge $rate 0.000001 -}}52
{{- else -}}78
{{- end -}}
{{- end -}}

{{/* Bytes of a size as bloomguard reads it: 64MiB, 1GB, 1048576. */}}
{{- define "bloomguard.bytes" -}}
{{- $text := toString . | trim | lower -}}
{{- if kindIs "float64" . -}}{{- $text = int64 . | toString -}}{{- end -}}
{{- $number := regexFind "^[0-9.]+" $text | float64 -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $factors := dict "" 1 "b" 1 "k" 1000 "kb" 1000 "m" 1000000 "mb" 1000000 "g" 1000000000 "gb" 1000000000 "ki" 1024 "kib" 1024 "mi" 1048576 "mib" 1048576 "gi" 1073741824 "gib" 1073741824 -}}
{{- if or (not (regexMatch "^[0-9.]+ *[a-z]*$" $text)) (not (hasKey $factors $unit)) -}}{{- fail (printf "%v is no size: write 64MiB, 1GB, or bytes" .) -}}{{- end -}}
{{- mulf $number (get $factors $unit) | int64 -}}
{{- end -}}

{{/*
Bytes of one keyspace: its filter twice, because a rebuild holds both, the keys of a set twice, caches, announces. Takes
keyspace, redis and server.
*/}}
{{- define "bloomguard.keyspaceBytes" -}}
{{- $filter := default dict .keyspace.filter -}}
{{- $cache := default dict .keyspace.cache -}}
{{- $backend := default dict .keyspace.backend -}}
{{- $keys := mulf (default 1000000 $filter.expected_keys) (default 1.3 $filter.headroom) -}}
{{- $announces := include "bloomguard.bytes" (default "32MiB" (default dict .server).max_announce_bytes) | int64 -}}
{{- $filters := addf $announces (mulf 2 (divf (mulf $keys (include "bloomguard.bitsPerKey" (default 0.001 $filter.false_positive_rate) | float64)) 8)) -}}
{{- if eq (default "sql" $backend.kind) "set" -}}
{{- /* 8 bytes an integer, 16 a UUID, else the key and 6: 40 on the average. 36 MiB of notes. */ -}}
{{- $bytes := get (dict "integer" 8 "uuid" 16) (default "" .keyspace.key) | default 40 -}}
{{- addf $filters (mulf 2 $keys $bytes) 37748736 | int64 -}}
{{- else -}}
{{- $caches := mul (.redis | ternary 1 2) (include "bloomguard.bytes" (default "64MiB" $cache.hot_capacity) | int64) -}}
{{- addf $filters $caches | int64 -}}
{{- end -}}
{{- end -}}

{{/*
Bytes that requests and responses may hold: server.max_buffered_bytes; if that is 0, the least that bloomguard chooses.
*/}}
{{- define "bloomguard.bufferedBytes" -}}
{{- $server := default dict .Values.config.server -}}
{{- $set := include "bloomguard.bytes" (default 0 $server.max_buffered_bytes) | int64 -}}
{{- $body := include "bloomguard.bytes" (default "16MiB" $server.max_body_bytes) | int64 -}}
{{- $batch := div (mul 4 (add (mul 1024 (default 10000 $server.max_batch_keys | int64)) (mul 2 $body))) 3 -}}
{{- ternary $set (max 67108864 (mul 4 $body) $batch) (gt $set 0) -}}
{{- end -}}

{{/*
Memory of the container: 32 MiB for the process, requests and responses, all keyspaces, and a tenth that the allocator
cannot use.
*/}}
{{- define "bloomguard.memory" -}}
{{- $bytes := add 33554432 (include "bloomguard.bufferedBytes" . | int64) -}}
{{- $redis := not (empty .Values.config.redis) -}}
{{- range $name, $keyspace := include "bloomguard.keyspaces" . | fromYaml -}}
{{- $bytes = add $bytes (include "bloomguard.keyspaceBytes" (dict "keyspace" $keyspace "redis" $redis "server" $.Values.config.server) | int64) -}}
{{- end -}}
{{- divf (mulf $bytes 1.1) 1048576 | ceil | int64 }}Mi
{{- end -}}

{{/* Size of the data directory: journals, and a snapshot of each filter, twice while one is written. */}}
{{- define "bloomguard.dataSize" -}}
{{- include "bloomguard.memory" . | trimSuffix "Mi" | int64 | add 1024 }}Mi
{{- end -}}

{{- define "bloomguard.resources" -}}
{{- $requests := deepCopy (default dict .Values.resources.requests) -}}
{{- $limits := deepCopy (default dict .Values.resources.limits) -}}
{{- $memory := default (include "bloomguard.memory" .) $requests.memory -}}
{{- $_ := set $requests "memory" $memory -}}
{{- $_ := set $limits "memory" (default $memory $limits.memory) -}}
{{- dict "requests" $requests "limits" $limits | toYaml -}}
{{- end -}}
